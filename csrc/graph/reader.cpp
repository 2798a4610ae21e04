#include "graph/container.hpp"
#include "graph/find_columns.hpp"
#include "graph/impl.hpp"
#include "graph/mapped_file.hpp"
#include "graph/trace_header.hpp"

namespace prism {

Result<ExecutionGraph> open_trace(const std::string& path, Check check) {
  PRISM_ASSIGN_OR_RETURN(const auto file, MappedFile::open(path));
  PRISM_ASSIGN_OR_RETURN(const auto container, parse_container(file->bytes(), path));
  const auto text = container.metadata.find("prism");
  if (text == container.metadata.end())
    return Error{ErrorCode::kCorruptFile, path + ": __metadata__.prism is missing; is it a .prism file?"};
  PRISM_ASSIGN_OR_RETURN(auto header, parse_trace_header(text->second, path));
  PRISM_ASSIGN_OR_RETURN(const auto columns, find_columns<ColumnSet<View>>(container, file->bytes(), path));
  PRISM_ASSIGN_OR_RETURN(auto impl, ExecutionGraph::Impl::create(std::move(header), columns, file, {path}));
  ExecutionGraph graph(std::move(impl));
  if (check == Check::kAll) PRISM_RETURN_IF_ERROR(validate(graph));
  return graph;
}

}  // namespace prism
