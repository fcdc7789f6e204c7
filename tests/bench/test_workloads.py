from collections import Counter

import pytest

from leveret.bench.errors import BenchError
from leveret.bench.topology import Topology
from leveret.bench.workloads import WORKLOADS, Workload


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=lambda workload: workload.name)
def test_named_workloads_fit_together(workload: Workload) -> None:
    workload.check()
    assert workload.title


@pytest.mark.parametrize(
    "workload",
    [
        Workload(size=15),
        Workload(fanout=3, topic=10),
        Workload(fanout=3, queues=2),
        Workload(topic=2, queues=3, consumers=3),
        Workload(queues=2, consumers=1),
        Workload(producers=401),
        Workload(prefetch=10, ack_every=11),
    ],
)
def test_what_does_not_fit_is_refused(workload: Workload) -> None:
    with pytest.raises(BenchError):
        workload.check()


@pytest.mark.parametrize(
    "workload",
    [
        Workload(),
        Workload(producers=2, queues=4, consumers=4),
        Workload(producers=4, queues=2, consumers=2),
        Workload(producers=2, fanout=3),
        Workload(producers=2, topic=10, queues=3, consumers=3),
    ],
)
def test_each_stream_is_one_lane_and_each_queue_is_fed(workload: Workload) -> None:
    topology = Topology(workload, "t")
    lanes = [lane for producer in range(workload.producers) for lane in topology.lanes(producer)]
    assert set(Counter(lane.stream for lane in lanes).values()) == {1}
    assert {queue for lane in lanes for queue in lane.queues} == set(range(workload.queue_count))
    assert all(len({len(key) for key in lane.keys}) == 1 for lane in lanes)
