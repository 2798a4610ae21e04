// Opening an index: a stranger's file, so that every value is looked at before anybody uses it as an index.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "core/vocabulary.hpp"
#include "data/header.hpp"
#include "data/index.hpp"
#include "data/order.hpp"
#include "data/stored_type.hpp"
#include "graph/container.hpp"
#include "graph/find_columns.hpp"

namespace prism {
namespace {

class Checker {
 public:
  Checker(const DataHeader& header, const DataColumns<DataView>& columns, const std::string& path)
      : header_(header), c_(columns), path_(path) {}

  Result<void> check() const {
    PRISM_RETURN_IF_ERROR(lengths());
    PRISM_RETURN_IF_ERROR(groups());
    PRISM_RETURN_IF_ERROR(tensors());
    return comms();
  }

 private:
  template <typename Value>
  Error wrong(const char* column, std::size_t i, Value value, const std::string& accepted) const {
    return {ErrorCode::kCorruptFile, fmt::format("{}: {}[{}] is {}; accepted: {}", path_, column, i, value, accepted)};
  }

  Result<void> length(const char* column, std::size_t have, std::size_t want) const {
    if (have == want) return {};
    return Error{ErrorCode::kCorruptFile,
                 fmt::format("{}: column '{}' has {} entries; accepted: {}", path_, column, have, want)};
  }

  Result<void> cut(const char* column, DataView<std::uint64_t> offsets, std::size_t owners, std::size_t entries) const {
    PRISM_RETURN_IF_ERROR(length(column, offsets.size(), owners + 1));
    for (std::size_t i = 0; i <= owners; ++i) {
      const std::uint64_t least = i == 0 ? 0 : offsets[i - 1];
      const std::uint64_t most = i == 0 ? 0 : entries;
      if (offsets[i] < least || offsets[i] > most || (i == owners && offsets[i] != entries))
        return wrong(column, i, offsets[i], fmt::format("{} to {}, {} at the end", least, most, entries));
    }
    return {};
  }

  Result<void> lengths() const {
    const std::size_t comms = c_.comm_seq.size(), tensors = c_.tensor_bytes.size();
    Result<void> result;
    for_each_column(c_, [&](std::string_view name, const auto& column) {
      const bool cuts = name.ends_with("_offset");
      if (!result || cuts) return;
      std::size_t want = column.size();
      if (name.starts_with("comm_")) want = comms;
      if (name.starts_with("tensor_")) want = tensors;
      if (name.starts_with("block_")) want = c_.block_member.size();
      if (name.starts_with("digest_")) want = c_.digest_member.size();
      result = length(name.data(), column.size(), want);
    });
    PRISM_RETURN_IF_ERROR(result);
    PRISM_RETURN_IF_ERROR(cut("comm_block_offset", c_.comm_block_offset, comms, c_.block_member.size()));
    PRISM_RETURN_IF_ERROR(cut("comm_digest_offset", c_.comm_digest_offset, comms, c_.digest_member.size()));
    return cut("group_member_offset", c_.group_member_offset, header_.groups.size(), c_.group_member.size());
  }

  Result<void> groups() const {
    for (std::size_t g = 0; g < header_.groups.size(); ++g) {
      std::set<std::int32_t> seen;
      for (std::uint64_t i = c_.group_member_offset[g]; i < c_.group_member_offset[g + 1]; ++i) {
        const auto rank = c_.group_member[i];
        if (rank < 0 || rank >= header_.world_size || !seen.insert(rank).second)
          return wrong("group_member", i, rank, fmt::format("0 to {}, each once a group", header_.world_size - 1));
      }
    }
    return {};
  }

  Result<void> tensors() const {
    for (std::size_t i = 0; i < c_.tensor_bytes.size(); ++i) {
      const auto dtype = static_cast<DType>(c_.tensor_dtype[i]);
      if (c_.tensor_dtype[i] >= static_cast<std::uint8_t>(DType::kCount) || stored_type(dtype).name == nullptr)
        return wrong("tensor_dtype", i, c_.tensor_dtype[i], "an element type of the vocabulary");
      if (c_.tensor_bytes[i] % element_size(dtype) != 0)
        return wrong("tensor_bytes", i, c_.tensor_bytes[i], fmt::format("multiples of {}", element_size(dtype)));
      const auto shard = c_.tensor_shard[i];
      if (shard < kOwnFile || shard >= static_cast<std::int64_t>(header_.shards))
        return wrong("tensor_shard", i, shard, fmt::format("-1 to {}", std::int64_t{header_.shards} - 1));
      if (i > 0 && !(tensor_key(c_, i - 1) < tensor_key(c_, i)))
        return wrong("tensor_high", i, to_hex({c_.tensor_low[i], c_.tensor_high[i]}), "ascending tensors");
    }
    return {};
  }

  Result<void> comms() const {
    for (std::size_t i = 0; i < c_.comm_seq.size(); ++i) {
      PRISM_RETURN_IF_ERROR(comm(i));
      PRISM_RETURN_IF_ERROR(blocks(i));
    }
    return {};
  }

  std::int32_t members(std::size_t comm) const {
    const auto g = c_.comm_group[comm];
    return static_cast<std::int32_t>(c_.group_member_offset[g + 1] - c_.group_member_offset[g]);
  }

  Result<void> comm(std::size_t i) const {
    if (c_.comm_group[i] >= header_.groups.size())
      return wrong("comm_group", i, c_.comm_group[i], fmt::format("below {}", header_.groups.size()));
    const auto op = static_cast<Op>(c_.comm_op[i]);
    if (c_.comm_op[i] >= static_cast<std::uint8_t>(Op::kCount) || op == Op::kNone || op == Op::kRecv)
      return wrong("comm_op", i, c_.comm_op[i], "an operation of the vocabulary, messages as their send");
    if (c_.comm_dtype[i] >= static_cast<std::uint8_t>(DType::kCount))
      return wrong("comm_dtype", i, c_.comm_dtype[i], "an element type of the vocabulary");
    if (c_.comm_reduce_op[i] >= static_cast<std::uint8_t>(ReduceOp::kCount))
      return wrong("comm_reduce_op", i, c_.comm_reduce_op[i], "a reduction of the vocabulary");
    if (c_.comm_seq[i] < 0) return wrong("comm_seq", i, c_.comm_seq[i], "0 and above");
    const bool message = op == Op::kSend;
    const auto g = c_.comm_group[i];
    const auto group = c_.group_member.subspan(c_.group_member_offset[g], static_cast<std::size_t>(members(i)));
    const auto end = [&](const char* column, std::int32_t rank) -> Result<void> {
      if (message ? std::ranges::find(group, rank) != group.end() : rank == -1) return {};
      return wrong(column, i, rank, message ? "members of the group" : "-1, as this is no message");
    };
    PRISM_RETURN_IF_ERROR(end("comm_source", c_.comm_source[i]));
    PRISM_RETURN_IF_ERROR(end("comm_destination", c_.comm_destination[i]));
    const bool rooted = is_rooted(op);
    if (rooted ? c_.comm_root[i] < 0 || c_.comm_root[i] >= members(i) : c_.comm_root[i] != -1)
      return wrong("comm_root", i, c_.comm_root[i], rooted ? fmt::format("0 to {}", members(i) - 1) : "-1");
    if (i > 0 && !(comm_key(c_, i - 1) < comm_key(c_, i)))
      return wrong("comm_seq", i, c_.comm_seq[i], "ascending communications");
    return {};
  }

  Result<void> blocks(std::size_t comm) const {
    const auto first = c_.comm_block_offset[comm];
    for (auto i = first; i < c_.comm_block_offset[comm + 1]; ++i) {
      if (c_.block_member[i] < kVirtualPart || c_.block_member[i] >= members(comm))
        return wrong("block_member", i, c_.block_member[i], fmt::format("-1 to {}", members(comm) - 1));
      if (c_.block_tensor[i] >= c_.tensor_bytes.size())
        return wrong("block_tensor", i, c_.block_tensor[i], fmt::format("below {}", c_.tensor_bytes.size()));
      const auto place = [&](std::uint64_t at) { return std::tuple(c_.block_member[at], c_.block_index[at]); };
      if (i > first && !(place(i - 1) < place(i)))
        return wrong("block_index", i, c_.block_index[i], "ascending members and indices");
    }
    const auto digest = c_.comm_digest_offset[comm];
    for (auto i = digest; i < c_.comm_digest_offset[comm + 1]; ++i)
      if (c_.digest_member[i] < 0 || c_.digest_member[i] >= members(comm) ||
          (i > digest && c_.digest_member[i] <= c_.digest_member[i - 1]))
        return wrong("digest_member", i, c_.digest_member[i], fmt::format("ascending, 0 to {}", members(comm) - 1));
    return {};
  }

  const DataHeader& header_;
  const DataColumns<DataView>& c_;
  const std::string& path_;
};

}  // namespace

Result<DataIndex> open_index(const std::string& path) {
  DataIndex index;
  PRISM_ASSIGN_OR_RETURN(index.file, MappedFile::open(path));
  PRISM_ASSIGN_OR_RETURN(const auto container, parse_container(index.file->bytes(), path));
  const auto text = container.metadata.find("prismdata");
  if (text == container.metadata.end())
    return Error{ErrorCode::kCorruptFile, path + ": __metadata__.prismdata is missing; is it an index of tensors?"};
  PRISM_ASSIGN_OR_RETURN(index.header, parse_data_header(text->second, path));
  PRISM_ASSIGN_OR_RETURN(index.columns, find_columns<DataColumns<DataView>>(container, index.file->bytes(), path));
  PRISM_RETURN_IF_ERROR(Checker(index.header, index.columns, path).check());
  return index;
}

}  // namespace prism
