"""A keyed count in a script of its own: what a user writes. Storm starts it as a shell bolt."""

from pyroute.storm.task_bolt import Record, TaskBolt


class Count(TaskBolt):
    """Counts words, and tells every hundredth occurrence to whoever reads `milestones`."""

    def apply(self, record: Record) -> None:
        record.state = (record.state or 0) + 1
        if record.state % 100 == 0:
            self.emit_on([record.key, record.state], record, stream="milestones")


if __name__ == "__main__":
    Count().run()
