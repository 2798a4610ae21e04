// SPDX-License-Identifier: GPL-2.0-only
// What ends the program with one line.
#pragma once
#include <stdexcept>

namespace prism_ns3 {

// What was asked for cannot be: what, the value, what is accepted.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The simulation has failed.
struct Failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace prism_ns3
