// The vocabulary of collectives: one name for each operation, element type and reduction, the same in C++, Python,
// files and messages. Operation names are those of torch.distributed's public functions. The numeric values are
// stored in files: append, never renumber.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace prism {

#define PRISM_OPS(X)                                                   \
  X(kNone, "none")                                                     \
  X(kAllReduce, "all_reduce")                                          \
  X(kAllReduceCoalesced, "all_reduce_coalesced")                       \
  X(kBroadcast, "broadcast")                                           \
  X(kReduce, "reduce")                                                 \
  X(kAllGather, "all_gather")                                          \
  X(kAllGatherIntoTensor, "all_gather_into_tensor")                    \
  X(kAllGatherCoalesced, "all_gather_coalesced")                       \
  X(kAllGatherIntoTensorCoalesced, "all_gather_into_tensor_coalesced") \
  X(kReduceScatter, "reduce_scatter")                                  \
  X(kReduceScatterTensor, "reduce_scatter_tensor")                     \
  X(kReduceScatterTensorCoalesced, "reduce_scatter_tensor_coalesced")  \
  X(kAllToAll, "all_to_all")                                           \
  X(kAllToAllSingle, "all_to_all_single")                              \
  X(kGather, "gather")                                                 \
  X(kScatter, "scatter")                                               \
  X(kBarrier, "barrier")                                               \
  X(kSend, "send")                                                     \
  X(kRecv, "recv")

#define PRISM_DTYPES(X)                \
  X(kNone, "none", 0)                  \
  X(kFloat64, "float64", 8)            \
  X(kFloat32, "float32", 4)            \
  X(kFloat16, "float16", 2)            \
  X(kBFloat16, "bfloat16", 2)          \
  X(kInt64, "int64", 8)                \
  X(kInt32, "int32", 4)                \
  X(kInt16, "int16", 2)                \
  X(kInt8, "int8", 1)                  \
  X(kUInt8, "uint8", 1)                \
  X(kBool, "bool", 1)                  \
  X(kUInt16, "uint16", 2)              \
  X(kUInt32, "uint32", 4)              \
  X(kUInt64, "uint64", 8)              \
  X(kComplex64, "complex64", 8)        \
  X(kComplex128, "complex128", 16)     \
  X(kFloat8E4M3FN, "float8_e4m3fn", 1) \
  X(kFloat8E5M2, "float8_e5m2", 1)

#define PRISM_REDUCE_OPS(X) \
  X(kNone, "none")          \
  X(kSum, "sum")            \
  X(kAvg, "avg")            \
  X(kProduct, "product")    \
  X(kMin, "min")            \
  X(kMax, "max")            \
  X(kBitAnd, "bit_and")     \
  X(kBitOr, "bit_or")       \
  X(kBitXor, "bit_xor")

#define PRISM_ENUMERATOR2(id, name) id,
#define PRISM_ENUMERATOR3(id, name, size) id,
enum class Op : std::uint8_t { PRISM_OPS(PRISM_ENUMERATOR2) kCount };
enum class DType : std::uint8_t { PRISM_DTYPES(PRISM_ENUMERATOR3) kCount };
enum class ReduceOp : std::uint8_t { PRISM_REDUCE_OPS(PRISM_ENUMERATOR2) kCount };
#undef PRISM_ENUMERATOR2
#undef PRISM_ENUMERATOR3

std::string_view name(Op op);
std::string_view name(DType dtype);
std::string_view name(ReduceOp op);
std::optional<Op> op_from_name(std::string_view text);
std::optional<DType> dtype_from_name(std::string_view text);
std::optional<ReduceOp> reduce_op_from_name(std::string_view text);

// Bytes of one element; 0 for DType::kNone.
std::size_t element_size(DType dtype);

// Integers and bool: what programs branch on, sizes and token numbers among them.
bool is_whole(DType dtype);

inline bool is_point_to_point(Op op) { return op == Op::kSend || op == Op::kRecv; }
// Operations whose result needs arithmetic; all others only move bytes.
inline bool is_reduction(Op op) {
  switch (op) {
    case Op::kAllReduce:
    case Op::kAllReduceCoalesced:
    case Op::kReduce:
    case Op::kReduceScatter:
    case Op::kReduceScatterTensor:
    case Op::kReduceScatterTensorCoalesced:
      return true;
    default:
      return false;
  }
}
// Operations with a distinguished member (broadcast, reduce, gather, scatter).
inline bool is_rooted(Op op) {
  return op == Op::kBroadcast || op == Op::kReduce || op == Op::kGather || op == Op::kScatter;
}

}  // namespace prism
