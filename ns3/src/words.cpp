// SPDX-License-Identifier: GPL-2.0-only
#include "words.hpp"

#include <charconv>

#include "refused.hpp"

namespace prism_ns3 {
namespace {

constexpr std::size_t kShown = 40;  // characters of a wrong word

template <typename T>
std::string text_of(T value) {
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  return {digits, end};
}

template <typename T>
T number(std::string_view word, std::string_view what, T low, T high) {
  T value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || !(value >= low && value <= high))
    throw Refused(std::string(what) + " '" + std::string(word.substr(0, kShown)) + "'; accepted: " + text_of(low) +
                  " to " + text_of(high));
  return value;
}

}  // namespace

std::string_view Words::next() {
  rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size()));
  const auto word = rest_.substr(0, rest_.find(' '));
  rest_.remove_prefix(word.size());
  return word;
}

std::int64_t Words::integer(std::string_view what, std::int64_t low, std::int64_t high) {
  return number(next(), what, low, high);
}

double Words::real(std::string_view what, double low, double high) { return number(next(), what, low, high); }

void Words::end() {
  if (const auto word = next(); !word.empty())
    throw Refused("'" + std::string(word.substr(0, kShown)) + "' after the end of the request");
}

}  // namespace prism_ns3
