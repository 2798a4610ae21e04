// Which links are the two directions of a cable.
#pragma once
#include <vector>

#include "simulate/topology.hpp"

namespace prism::simulate {

// By link the other direction of the same cable, -1 where there is none: of parallel ones the first with the first.
std::vector<LinkId> twins_of(const std::vector<Link>& links);

}  // namespace prism::simulate
