#include "simulate/cables.hpp"

#include <map>
#include <utility>

namespace prism::simulate {

std::vector<LinkId> twins_of(const std::vector<Link>& links) {
  std::vector<LinkId> twin(links.size(), -1);
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<LinkId>> alone;
  for (LinkId id = 0; id < static_cast<LinkId>(links.size()); ++id) {
    auto& back = alone[{links[id].to, links[id].from}];
    if (back.empty()) {
      alone[{links[id].from, links[id].to}].push_back(id);
      continue;
    }
    twin[id] = back.front();
    twin[back.front()] = id;
    back.erase(back.begin());
  }
  return twin;
}

}  // namespace prism::simulate
