// Told which bytes pass over which links, by a network that was given one.
#pragma once
#include <span>

#include "simulate/network.hpp"

namespace prism::simulate {

// Messages without bytes, or between endpoints of one vertex, pass over no link and are not told of.
class FlowObserver {
 public:
  virtual ~FlowObserver() = default;
  virtual void began(Picoseconds at, const Message& message, std::span<const LinkId> route) = 0;
  // Evenly from `from` to `to`; without gaps from began() to ended(). Some networks know and tell it ahead.
  virtual void passed(Picoseconds from, Picoseconds to, double bytes, std::span<const LinkId> route) = 0;
  virtual void ended(Picoseconds at, const Message& message, std::span<const LinkId> route) = 0;
};

}  // namespace prism::simulate
