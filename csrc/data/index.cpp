#include "data/index.hpp"

#include <fmt/format.h>

#include "data/header.hpp"
#include "data/output_file.hpp"
#include "graph/column_type.hpp"
#include "graph/container.hpp"

namespace prism {

std::string index_path(const std::string& folder) { return folder + "/index.prismdata"; }
std::string shard_path(const std::string& folder, std::uint32_t shard) {
  return fmt::format("{}/small-{:05}.prismdata", folder, shard);
}

Result<void> write_index(const DataHeader& header, DataColumns<DataOwned>& columns, const std::string& path) {
  Container container;
  PRISM_ASSIGN_OR_RETURN(container.metadata["prismdata"], format_data_header(header));
  std::uint64_t end = 0;
  for_each_column(columns, [&]<typename T>(std::string_view name, const std::vector<T>& column) {
    const std::uint64_t bytes = column.size() * sizeof(T);
    container.entries.push_back({std::string(name), container_dtype<T>(), column.size(), end, end + bytes});
    end += bytes;
  });
  PRISM_ASSIGN_OR_RETURN(const auto text, container_header(container));
  OutputFile file;
  PRISM_RETURN_IF_ERROR(file.create(path));
  Result<void> result = file.write(std::as_bytes(std::span(text)));
  for_each_column(columns, [&](std::string_view, const auto& column) {
    if (result) result = file.write(std::as_bytes(std::span(column)));
  });
  PRISM_RETURN_IF_ERROR(result);
  return file.close();
}

}  // namespace prism
