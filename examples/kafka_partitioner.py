"""A partitioner for Kafka producers: Kafka's own choice, but for the few keys that overload one.

    python examples/kafka_partitioner.py

No broker is needed to try it: a partitioner is a function. Every key that the plan does not name
stays where Kafka's default puts it, so that consumers and other producers find it as before.

Moving a key changes its partition: its records after the change are not ordered with those before
it. Change the table where that is allowed, such as at the end of a day.
"""

import numpy as np

import pyroute as pr

PARTITIONS = 12


class Partitioner:
    """What `KafkaProducer(partitioner=...)` of kafka-python takes.

    Kafka hands the key over as bytes. With confluent-kafka, which asks for a number, use `choose`:
    `producer.produce(topic, value, key, partition=partitioner.choose(key))`.
    """

    def __init__(self, router):
        self.router = router

    def choose(self, key):
        return self.router.route_one(key)

    def __call__(self, key, all_partitions, available):
        if key is None:  # no key, no order: any partition that is there
            return available[0] if available else all_partitions[0]
        return all_partitions[self.choose(key)]


def main():
    random = np.random.default_rng(0)
    users = (3000 * random.random(200_000) ** 3).astype(int)  # a few of them click a lot
    keys = np.char.add("user", users.astype("U4")).astype("S8")  # as a producer serializes them

    # The home is Kafka's murmur2 over the bytes: equal to the default partitioner, bit for bit.
    router = pr.Router(pr.KafkaHash(PARTITIONS, serializer="bytes"))
    stats = pr.KeyStats()
    stats.observe(keys.tolist())
    plan = pr.rebalance(stats.close_interval(), router, max_imbalance=0.05)
    print(plan.summary())

    partitioner = Partitioner(router.apply(plan))
    partitions = list(range(PARTITIONS))
    sent = np.bincount([partitioner(key, partitions, partitions) for key in keys[:20_000].tolist()])
    default = np.bincount(router.route(keys[:20_000].tolist()))
    print(f"busiest partition: {default.max() / default.mean():.2f} times the mean by default,")
    print(f"                   {sent.max() / sent.mean():.2f} with {len(plan.table)} keys moved")

    # What producers read at their start: a small file, checked and versioned.
    text = partitioner.router.to_json()
    again = Partitioner(pr.Router.from_json(text))
    assert again(b"user1", partitions, partitions) == partitioner(b"user1", partitions, partitions)
    return default, sent


if __name__ == "__main__":
    main()
