"""Heartbeats: the timing of RabbitMQ, with time as an argument."""

from leveret.amqp.heartbeat import HeartbeatClock


def test_a_heartbeat_is_due_after_half_an_interval_of_silence():
    clock = HeartbeatClock(10, 100.0)
    assert not clock.due(104.9)
    assert clock.due(105.0)
    clock.sent(105.0)
    assert not clock.due(109.9)
    assert clock.due(110.0)


def test_two_silent_checks_in_a_row_mean_death():
    clock = HeartbeatClock(10, 100.0)
    assert not clock.is_dead(110.0)
    assert not clock.is_dead(119.9)
    assert clock.is_dead(120.0)
    assert clock.is_dead(121.0)


def test_any_bytes_start_the_count_again():
    clock = HeartbeatClock(10, 100.0)
    assert not clock.is_dead(110.0)
    clock.received(111.0)
    assert not clock.is_dead(120.0)
    assert not clock.is_dead(130.0)
    assert clock.is_dead(140.0)


def test_a_peer_that_speaks_lives_however_often_we_ask():
    clock = HeartbeatClock(10, 0.0)
    for second in range(1, 1000):
        if second % 9 == 0:
            clock.received(second)
        assert not clock.is_dead(second)


def test_a_pause_of_our_own_process_does_not_kill_the_peer():
    clock = HeartbeatClock(10, 0.0)
    assert not clock.is_dead(3600.0)
    clock.received(3600.1)
    assert not clock.is_dead(3610.0)


def test_zero_switches_it_off():
    clock = HeartbeatClock(0, 0.0)
    assert not clock.due(1e9)
    assert not clock.is_dead(1e9)
