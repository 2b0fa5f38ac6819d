// Homes that agree bit for bit with an engine's own default, so that pyroute can take over from it:
// a table over such a home names only the keys that leave.
//
//   spark   repartition(n, cols): pmod(Murmur3 of the columns, seed 42, n); types are not widened
//   storm   fieldsGrouping: floorMod(Arrays.deepHashCode(fields), n), an index into the ascending
//           tasks
//   kafka   the keyed partitioner: toPositive(murmur2(serialized key)) % n
//   flink   keyBy: key group = murmurHash(hashCode) % max_parallelism, then group * n /
//           max_parallelism; a key of several fields hashes as Flink's TupleN
// The engines hash an int and a long of one number differently, so the type of each field is fixed
// here and values must be of it. A null has a home in Spark and Storm; Kafka and Flink refuse it,
// and so does this.
//
// Guarantee: engine_vectors (equal to the engines' own classes on the golden files).
// Cost: one hash per record, by value; 5 to 20 ns. Threads: immutable.
#pragma once

#include "column.hpp"

namespace pyroute {

enum class Engine : std::uint8_t { spark = 0, storm = 1, kafka = 2, flink = 3 };
enum class Field : std::uint8_t {
  boolean = 0,
  int8 = 1,
  int16 = 2,
  int32 = 3,
  int64 = 4,
  date = 5,
  timestamp = 6,
  text = 7,
  bytes = 8,
};

class EngineHome {
 public:
  // types are the engine's own words, for example "bigint" (Spark), "long" (Storm, Flink, Kafka).
  // Throws std::invalid_argument for tasks outside 1 to 2^31 - 1, a type the engine does not have,
  // several fields for Kafka, and max_parallelism outside tasks to 32768 (Flink).
  EngineHome(Engine engine, std::int64_t tasks, const std::vector<std::string>& types,
             std::int64_t max_parallelism);

  // Throws TypeMismatch when the batch cannot hold such values.
  void expect(const Batch& values) const;
  // Homes of rows [begin, begin + count). Throws std::invalid_argument for a value outside its
  // type.
  void homes(const Batch& values, std::size_t begin, std::size_t count, TaskId* out) const;

  [[nodiscard]] Engine engine() const noexcept { return engine_; }
  [[nodiscard]] TaskId tasks() const noexcept { return tasks_; }
  [[nodiscard]] std::int32_t max_parallelism() const noexcept { return max_parallelism_; }
  [[nodiscard]] std::vector<std::string> types() const;
  [[nodiscard]] std::uint64_t fingerprint() const;
  [[nodiscard]] bool operator==(const EngineHome& other) const = default;

  [[nodiscard]] std::string to_bytes() const;
  [[nodiscard]] static EngineHome from_bytes(std::string_view data);

 private:
  [[nodiscard]] TaskId home(const Value* values) const;

  Engine engine_;
  TaskId tasks_;
  std::int32_t max_parallelism_;
  std::vector<Field> fields_;
};

}  // namespace pyroute
