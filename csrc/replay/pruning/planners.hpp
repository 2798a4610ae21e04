// What virtual members send, told to Programs.
#pragma once
#include "replay/pruning/programs.hpp"
#include "replay/pruning/ways.hpp"

namespace prism::pruning {

// Every chunk's way apart. `reduction`: the result is of all members' inputs, not of the root's alone.
void plan_ways(const Ways& ways, bool reduction, const Sandbox& sandbox, Programs& programs);
void plan_recursive_doubling(int members, const Sandbox& sandbox, Programs& programs);

}  // namespace prism::pruning
