// Something that a rank waits for, as far as a report needs to know it.
#pragma once
#include <string>
#include <vector>

namespace prism {

struct Pending {
  virtual ~Pending() = default;
  virtual std::string describe() const = 0;
  // Global ranks that have not come; empty where nobody can say who it will be.
  virtual std::vector<int> missing() const = 0;
};

}  // namespace prism
