#include "core/vocabulary.hpp"
#include "catch2.hpp"

using namespace prism;

TEST_CASE("every name of the vocabulary leads back to its value") {
  for (int i = 0; i < static_cast<int>(Op::kCount); ++i)
    REQUIRE(op_from_name(name(static_cast<Op>(i))) == static_cast<Op>(i));
  for (int i = 0; i < static_cast<int>(DType::kCount); ++i)
    REQUIRE(dtype_from_name(name(static_cast<DType>(i))) == static_cast<DType>(i));
  for (int i = 0; i < static_cast<int>(ReduceOp::kCount); ++i)
    REQUIRE(reduce_op_from_name(name(static_cast<ReduceOp>(i))) == static_cast<ReduceOp>(i));
  REQUIRE_FALSE(op_from_name("allreduce").has_value());
}

TEST_CASE("element sizes are those of the formats") {
  REQUIRE(element_size(DType::kBFloat16) == 2);
  REQUIRE(element_size(DType::kComplex128) == 16);
  REQUIRE(element_size(DType::kBool) == 1);
  REQUIRE(element_size(static_cast<DType>(200)) == 0);
}

TEST_CASE("a value outside the vocabulary has a name of its own, not memory of others") {
  REQUIRE(name(static_cast<Op>(250)) == "invalid");
}
