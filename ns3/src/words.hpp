// SPDX-License-Identifier: GPL-2.0-only
// The words of a line, each checked as it is taken.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace prism_ns3 {

class Words {
 public:
  explicit Words(std::string_view line) : rest_(line) {}

  std::string_view next();  // empty: there is none left
  // Refused where the word is missing, is no whole number or is not in low to high.
  std::int64_t integer(std::string_view what, std::int64_t low, std::int64_t high);
  double real(std::string_view what, double low, double high);
  void end();  // Refused where words are left

 private:
  std::string_view rest_;
};

}  // namespace prism_ns3
