"""pyroute inside Spark: routing in the JVM where it can be, and vectorized UDFs where it cannot.

>>> import spark_udf as su  # doctest: +SKIP
>>> made = su.balance(df, "user_id", tasks=200)  # doctest: +SKIP
>>> print(made.plan.summary())  # doctest: +SKIP
"""

try:
    import pyspark as _pyspark  # noqa: F401
except ImportError as error:
    raise ImportError("spark_udf needs PySpark: pip install 'pyroute-core[spark]'") from error

from spark_udf.balance import Balanced, balance, balanced, repartition
from spark_udf.by_key import apply_by_key
from spark_udf.columns import key
from spark_udf.join import Joined, balance_join
from spark_udf.route import route
from spark_udf.schedule import schedule
from spark_udf.stats import collect_pairs, collect_stats, cost_sketch, sketch, top_keys
from spark_udf.stream.routed_stream import RoutedStream, read_state
from spark_udf.stream.state import KeyedState
from spark_udf.udfs import key_udf, mean_time_udf, route_udf, schedule_udf

__all__ = [
    "Balanced",
    "Joined",
    "KeyedState",
    "RoutedStream",
    "apply_by_key",
    "balance",
    "balance_join",
    "balanced",
    "collect_pairs",
    "collect_stats",
    "cost_sketch",
    "key",
    "key_udf",
    "mean_time_udf",
    "read_state",
    "repartition",
    "route",
    "route_udf",
    "schedule",
    "schedule_udf",
    "sketch",
    "top_keys",
]
