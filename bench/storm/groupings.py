"""Does a table in the JVM cost more than Storm's own fields grouping?

As the section on routers, without a router: four counting tasks read the spout, by fields grouping
or by RoutedGrouping with 3,000 tabled keys.
"""

from typing import Any

from bench.peers import Scale
from bench.report import Section
from bench.storm import local

TITLE = "LocalCluster: groupings"


def measure(scale: Scale) -> dict[str, Any]:
    names = ["fieldsGrouping", "RoutedGrouping"]
    return local.arms_of(names, scale, 3 if scale.quick else 14)


def show(result: dict[str, Any]) -> Section:
    section = Section(TITLE, " ".join((__doc__ or "").split()))
    rates, _ = local.table_of(section, result)
    section.goals.append(local.over(rates, "RoutedGrouping", "fieldsGrouping", 0.95))
    return section
