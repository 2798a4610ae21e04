// simgrid_flows < FLOW_SETS: when flows over shared links end in SimGrid. README.md says how a set is written. Each set
// is simulated in a child process of its own, since SimGrid has one engine per process.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <numeric>
#include <sstream>

#include "simgrid.hpp"

using namespace peer;

namespace {

struct Link {
  double bytes_per_second, latency_s;
};

struct Flow {
  double start_s;
  std::uint64_t bytes;
  std::vector<int> route;  // indices of links
  double sets_out_s;       // start_s and the latencies of its route
};

struct FlowSet {
  std::vector<Link> links;
  std::vector<Flow> flows;
};

std::size_t read_heading(std::istream& text, const char* heading) {
  std::string word;
  std::size_t count = 0;
  if (!(text >> word >> count) || word != heading)
    fail("'" + word + "' where '" + heading + "' and their number were expected");
  return count;
}

FlowSet read_set(std::istream& text) {
  FlowSet set;
  for (std::size_t left = read_heading(text, "links"); left > 0; --left) {
    Link link{};
    if (!(text >> link.bytes_per_second >> link.latency_s) || !(link.bytes_per_second > 0 && link.latency_s >= 0))
      fail("link " + std::to_string(set.links.size()) + ": give its bytes per second, above 0, and latency in seconds");
    set.links.push_back(link);
  }
  for (std::size_t left = read_heading(text, "flows"); left > 0; --left) {
    const std::string name = "flow " + std::to_string(set.flows.size());
    Flow flow{};
    std::size_t hops = 0;
    if (!(text >> flow.start_s >> flow.bytes >> hops) || flow.start_s < 0 || flow.bytes == 0 || hops == 0 ||
        hops > set.links.size())
      fail(name + ": give its start in seconds, bytes, above 0, number of links, above 0, and their indices");
    flow.sets_out_s = flow.start_s;
    for (; hops > 0; --hops) {
      int link = -1;
      if (!(text >> link) || link < 0 || link >= static_cast<int>(set.links.size()) ||
          std::find(flow.route.begin(), flow.route.end(), link) != flow.route.end())
        fail(name + ": links are numbered from 0 to " + std::to_string(set.links.size() - 1) + " and taken once");
      flow.route.push_back(link);
      flow.sets_out_s += set.links[link].latency_s;
    }
    set.flows.push_back(std::move(flow));
  }
  return set;
}

// Two hosts for each flow would need a table of all their pairs; so hosts have no links of their own, and each ordered
// pair of them stands for one route.
class Routes {
 public:
  explicit Routes(const FlowSet& set) {
    for (const Flow& flow : set.flows) numbers_.try_emplace(flow.route, numbers_.size());
    s4u::NetZone* zone = s4u::create_full_zone("routes");
    while (hosts_.size() < 2 || hosts_.size() * (hosts_.size() - 1) < numbers_.size())
      hosts_.push_back(zone->create_host(std::to_string(hosts_.size()), 1e9));
    std::vector<s4u::Link*> links;
    for (const Link& link : set.links)
      links.push_back(zone->create_link(std::to_string(links.size()), link.bytes_per_second)->seal());
    for (const auto& [route, number] : numbers_) {
      const auto [from, to] = ends(route);
      std::vector<s4u::LinkInRoute> hops;
      for (const int link : route) hops.emplace_back(links[link]);
      zone->add_route(from->get_netpoint(), to->get_netpoint(), nullptr, nullptr, hops, false);
    }
    zone->seal();
  }

  std::pair<s4u::Host*, s4u::Host*> ends(const std::vector<int>& route) const {
    const std::size_t number = numbers_.at(route), others = hosts_.size() - 1;
    const std::size_t from = number / others, to = number % others;
    return {hosts_[from], hosts_[to < from ? to : to + 1]};
  }
  s4u::Host* any_host() const { return hosts_[0]; }

 private:
  std::map<std::vector<int>, std::size_t> numbers_;
  std::vector<s4u::Host*> hosts_;
};

// Latency passes before SimGrid sees the flow: it would give flows of one link shares inverse to their latencies.
void start_and_wait(const FlowSet& set, const Routes& routes, std::vector<double>& finish_s) {
  std::vector<std::size_t> order(set.flows.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return set.flows[a].sets_out_s < set.flows[b].sets_out_s; });
  std::vector<s4u::CommPtr> transfers(set.flows.size());
  for (const std::size_t i : order) {
    s4u::this_actor::sleep_until(set.flows[i].sets_out_s);
    const auto [from, to] = routes.ends(set.flows[i].route);
    transfers[i] = s4u::Comm::sendto_async(from, to, set.flows[i].bytes);
  }
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    transfers[i]->wait();
    finish_s[i] = transfers[i]->get_finish_time();
  }
}

void simulate(const std::string& text, int number) {
  std::istringstream input(text);
  const FlowSet set = read_set(input);
  int argc = 1;
  char name[] = "simgrid_flows", *argv[] = {name, nullptr};
  s4u::Engine engine(&argc, argv);
  use_plain_max_min();
  const Routes routes(set);
  std::vector<double> finish_s(set.flows.size());
  s4u::Actor::create("flows", routes.any_host(), [&] { start_and_wait(set, routes, finish_s); });
  const double wall_s = run(engine);
  for (const double finish : finish_s) std::printf("%.17g\n", finish);
  print_figure(stderr, "flow set " + std::to_string(number) + ": wall time", wall_s, "s");
}

void simulate_in_child(const std::string& text, int number) {
  if (number > 0) std::printf("---\n");
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    simulate(text, number);
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
    fail("simgrid_flows: flow set " + std::to_string(number) + " failed");
}

}  // namespace

int main() {
  std::string line, text;
  int number = 0;
  while (std::getline(std::cin, line)) {
    if (line == "---") {
      simulate_in_child(text, number++);
      text.clear();
    } else {
      text += line + "\n";
    }
  }
  simulate_in_child(text, number);
}
