// Pruned collectives of every element type and reduction: the same bits where nothing is rounded, else within a bound.
#include <cmath>

#include "replay/typed.hpp"

using namespace prism;
using namespace prism::test;

namespace {

constexpr ReduceOp kAllOps[] = {ReduceOp::kSum, ReduceOp::kAvg,    ReduceOp::kProduct, ReduceOp::kMin,
                                ReduceOp::kMax, ReduceOp::kBitAnd, ReduceOp::kBitOr,   ReduceOp::kBitXor};
const std::vector<Algorithm> kReductions = {
    {Op::kAllReduce, "ring"}, {Op::kReduceScatter, "ring"},         {Op::kReduce, "ring"},
    {Op::kAllReduce, "tree"}, {Op::kAllReduce, "halving_doubling"}, {Op::kAllReduce, "recursive_doubling"}};

struct Format {
  DType dtype;
  double unit;         // the largest relative error of rounding
  double accumulated;  // the same of the accumulation type
  double least;        // the smallest positive number
};
const std::vector<Format> kFloats = {
    {DType::kFloat64, 0x1p-53, 0x1p-53, 0x1p-1074},  {DType::kFloat32, 0x1p-24, 0x1p-53, 0x1p-149},
    {DType::kFloat16, 0x1p-11, 0x1p-24, 0x1p-24},    {DType::kBFloat16, 0x1p-8, 0x1p-24, 0x1p-133},
    {DType::kFloat8E4M3FN, 0x1p-4, 0x1p-24, 0x1p-9}, {DType::kFloat8E5M2, 0x1p-3, 0x1p-24, 0x1p-16}};

// Each rounding is a factor within 1 + u. Whatever a member puts in passes at most k additions that are rounded to the
// type, k being the members of the sandbox, and one rounding of the virtual part; before that, and where a wider sum is
// rounded twice, n roundings of the accumulation type.
double roundings_of_pruned(const Format& format, int members, int sandbox) {
  return std::expm1((sandbox + 1) * std::log1p(format.unit) + members * std::log1p(format.accumulated));
}
// Of a sum, A being the sum of the magnitudes; a virtual part below the normal numbers is off by the last bit.
double bound_of_pruned(const Format& format, int members, int sandbox, double magnitudes) {
  return roundings_of_pruned(format, members, sandbox) * magnitudes + format.least;
}
// Any order of n - 1 additions: (n - 1) u A (Jeannerod, Rump 2013), however large n u is.
double bound_of_any_order(const Format& format, int members, double magnitudes) {
  return (members - 1) * format.unit * magnitudes;
}

double uniform(Random& random) { return static_cast<double>(random() >> 11) * 0x1p-52 - 1; }

}  // namespace

TEST_CASE("of numbers that need no rounding every type and reduction has the unpruned bits") {
  Random random{10};
  int reductions = 0;
  for (int number = 1; number < static_cast<int>(DType::kCount); ++number)
    for (const ReduceOp op : kAllOps) {
      const auto dtype = static_cast<DType>(number);
      if (accumulation_type(dtype, op) == DType::kNone) continue;
      ++reductions;
      // Whole numbers wrap around. Sums of eight small ones are numbers of all floats; so are products of powers of
      // two.
      const auto value = [&](int) -> double {
        if (is_whole(dtype)) return static_cast<double>(static_cast<std::int64_t>(random() >> 11));
        if (op == ReduceOp::kProduct) return random.below(2) == 0 ? 1 : -2;
        return random.below(5) - 2;
      };
      for (const auto& [kind, algorithm] : kReductions) {
        const int members = 1 + random.below(4) + random.below(4);
        const TypedCollective whole(kind, algorithm, members, dtype, op, 5, value);
        const auto sandbox = random_set(random, members, 1 + random.below(members));
        INFO(name(op) << " of " << name(dtype) << " by " << algorithm << " of " << members << ", sandbox "
                      << Whole::text(sandbox));
        auto right = whole.unpruned();
        auto own = whole.pruned(sandbox);
        const int chunks = whole.schedule->chunks();
        for (std::size_t i = 0; i < sandbox.size(); ++i)
          for (int chunk = 0; chunk < chunks; ++chunk)
            if (whole.collective.gets(sandbox[i], chunk, chunks)) {
              if (op == ReduceOp::kAvg) {
                REQUIRE(divide(dtype, members, right[sandbox[i]][chunk]).ok());
                REQUIRE(divide(dtype, members, own[i][chunk]).ok());
              }
              REQUIRE(own[i][chunk] == right[sandbox[i]][chunk]);
            }
      }
    }
  CHECK(reductions == 6 * 5 + 2 * 3 + 8 * 8 - 1 + 7);
}

TEST_CASE("PREMUL_SUM is the sum of what members have scaled") {
  // Each has a factor of its own; the virtual part is of scaled inputs, and so must the sandbox's be.
  Random random{11};
  const auto scaled = [&](int member) { return std::ldexp(random.below(5) - 2, -(member % 3)); };
  const TypedCollective whole(Op::kAllReduce, "ring", 7, DType::kFloat32, ReduceOp::kSum, 4, scaled);
  const Set sandbox{1, 2, 5};
  const auto own = whole.pruned(sandbox);
  const auto right = whole.unpruned();
  for (std::size_t i = 0; i < sandbox.size(); ++i) CHECK(own[i] == right[sandbox[i]]);
}

TEST_CASE("sums of floats are within the bound of the exact sum, and of the unpruned one") {
  Random random{12};
  for (const auto& format : kFloats)
    for (const auto& [kind, algorithm] : kReductions)
      for (int round = 0; round < 6; ++round) {
        const int members = round == 0 ? 64 : 2 + random.below(30);
        const bool is_quarter = format.dtype == DType::kFloat8E4M3FN;  // its largest number is 448
        const auto value = [&](int) { return uniform(random) * (is_quarter ? 4 : 100); };
        const TypedCollective whole(kind, algorithm, members, format.dtype, ReduceOp::kSum, 16, value);
        const auto sandbox = random_set(random, members, 1 + random.below(std::min(members, 5)));
        INFO(name(format.dtype) << " by " << algorithm << " of " << members << ", sandbox " << Whole::text(sandbox));
        const auto unpruned = whole.unpruned();
        const auto own = whole.pruned(sandbox);
        const int chunks = whole.schedule->chunks();
        for (int chunk = 0; chunk < chunks; ++chunk)
          for (std::size_t element = 0; element < 16; ++element) {
            long double exact = 0, magnitudes = 0;
            for (const auto& input : whole.inputs) {
              const long double one = value_at(format.dtype, input[chunk], element);
              exact += one, magnitudes += std::fabs(one);
            }
            const auto size = static_cast<double>(magnitudes);
            const auto k = static_cast<int>(sandbox.size());
            const double from_pruned = bound_of_pruned(format, members, k, size);
            const double from_any = bound_of_any_order(format, members, size);
            for (std::size_t i = 0; i < sandbox.size(); ++i) {
              if (!whole.collective.gets(sandbox[i], chunk, chunks)) continue;
              const double pruned = value_at(format.dtype, own[i][chunk], element);
              const double full = value_at(format.dtype, unpruned[sandbox[i]][chunk], element);
              REQUIRE(std::fabs(pruned - exact) <= from_pruned + 0x1p-60 * size);  // of the long double
              REQUIRE(std::fabs(full - exact) <= from_any + 0x1p-60 * size);
              REQUIRE(std::fabs(pruned - full) <= from_pruned + from_any);
            }
          }
      }
}

TEST_CASE("members that agree in the unpruned all-reduce agree in the pruned one, to the bit") {
  // Replicas whose gradients differed in the last bit would drift apart.
  Random random{13};
  for (const auto& format : kFloats)
    for (const auto& [kind, algorithm] : kReductions) {
      if (kind != Op::kAllReduce) continue;
      for (int round = 0; round < 8; ++round) {
        const int members = 3 + random.below(30);
        const auto value = [&](int) { return uniform(random); };
        const TypedCollective whole(kind, algorithm, members, format.dtype, ReduceOp::kSum, 16, value);
        const auto sandbox = random_set(random, members, 2 + random.below(std::min(members - 2, 5)));
        INFO(name(format.dtype) << " by " << algorithm << " of " << members << ", sandbox " << Whole::text(sandbox));
        const auto unpruned = whole.unpruned();
        for (int member = 1; member < members; ++member) REQUIRE(unpruned[member] == unpruned[0]);
        const auto own = whole.pruned(sandbox);
        for (std::size_t i = 1; i < sandbox.size(); ++i) REQUIRE(own[i] == own[0]);
      }
    }
}

TEST_CASE("products of floats are within the same roundings of the exact product") {
  Random random{14};
  for (const auto& format : kFloats)
    for (const auto& [kind, algorithm] : kReductions) {
      const int members = 2 + random.below(15);
      const auto value = [&](int) { return 1 + 0.2 * uniform(random); };
      const TypedCollective whole(kind, algorithm, members, format.dtype, ReduceOp::kProduct, 16, value);
      const auto sandbox = random_set(random, members, 1 + random.below(members));
      INFO(name(format.dtype) << " by " << algorithm << " of " << members << ", sandbox " << Whole::text(sandbox));
      const auto own = whole.pruned(sandbox);
      const int chunks = whole.schedule->chunks();
      const double bound = roundings_of_pruned(format, members, static_cast<int>(sandbox.size()));
      for (std::size_t i = 0; i < sandbox.size(); ++i)
        for (int chunk = 0; chunk < chunks; ++chunk)
          for (std::size_t element = 0; element < 16; ++element) {
            if (!whole.collective.gets(sandbox[i], chunk, chunks)) continue;
            long double exact = 1;
            for (const auto& input : whole.inputs) exact *= value_at(format.dtype, input[chunk], element);
            const double pruned = value_at(format.dtype, own[i][chunk], element);
            REQUIRE(std::fabs(pruned - exact) <= static_cast<double>(exact) * (bound + members * 0x1p-63));
          }
    }
}

TEST_CASE("smallest and largest floats are the unpruned ones") {
  Random random{15};
  for (const auto& format : kFloats)
    for (const auto& [kind, algorithm] : kReductions)
      for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
        const int members = 2 + random.below(15);
        const auto value = [&](int) { return 100 * uniform(random); };
        const TypedCollective whole(kind, algorithm, members, format.dtype, op, 16, value);
        const auto sandbox = random_set(random, members, 1 + random.below(members));
        const auto own = whole.pruned(sandbox);
        const auto right = whole.unpruned();
        const int chunks = whole.schedule->chunks();
        for (std::size_t i = 0; i < sandbox.size(); ++i)
          for (int chunk = 0; chunk < chunks; ++chunk)
            if (whole.collective.gets(sandbox[i], chunk, chunks)) REQUIRE(own[i][chunk] == right[sandbox[i]][chunk]);
      }
}
