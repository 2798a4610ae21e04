#include "simulate/cables.hpp"

#include "catch2.hpp"

using namespace prism::simulate;

TEST_CASE("the directions of parallel cables are paired in their order, and a single one has none") {
  const auto link = [](int from, int to) { return Link{from, to, 1e9, 0, 1e9, 0}; };
  CHECK(twins_of({link(0, 1), link(0, 1), link(1, 0), link(1, 2), link(1, 0), link(0, 1)}) ==
        std::vector<LinkId>{2, 4, 0, -1, 1, -1});
}
