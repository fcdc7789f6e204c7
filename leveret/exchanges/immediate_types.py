"""Types of exchange that route a message as soon as it comes: all but the delayed one."""

from collections.abc import Mapping

from leveret.exchanges.consistent_hash import ConsistentHashExchange
from leveret.exchanges.deduplication_exchange import DeduplicationExchange
from leveret.exchanges.direct import DirectExchange
from leveret.exchanges.exchange import Exchange
from leveret.exchanges.fanout import FanoutExchange
from leveret.exchanges.headers import HeadersExchange
from leveret.exchanges.modulus_hash import ModulusHashExchange
from leveret.exchanges.random_choice import LocalRandomExchange, RandomExchange
from leveret.exchanges.recent_history import RecentHistoryExchange
from leveret.exchanges.topic import TopicExchange

IMMEDIATE_TYPES: Mapping[str, type[Exchange]] = {
    exchange_type.type_name: exchange_type
    for exchange_type in (
        DirectExchange,
        FanoutExchange,
        TopicExchange,
        HeadersExchange,
        ConsistentHashExchange,
        ModulusHashExchange,
        RandomExchange,
        LocalRandomExchange,
        RecentHistoryExchange,
        DeduplicationExchange,
    )
}
