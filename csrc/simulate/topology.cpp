#include "simulate/topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <queue>
#include <unordered_map>
#include <utility>

namespace prism::simulate {
namespace {

constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kCachedBytes = std::size_t{256} << 20;  // of costs
constexpr Picoseconds kLongest = Picoseconds{1} << 40;        // latency of a link, a second: hops come first

std::int64_t cost_of(const Link& link) { return (std::int64_t{1} << 46) + link.latency; }

std::uint64_t mixed(std::uint64_t x) {  // splitmix64's finaliser
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

Error wrong(std::string text) { return {ErrorCode::kInvalidInput, std::move(text)}; }

Result<void> check(const TopologySpec& spec) {
  if (spec.vertices < 0) return wrong(fmt::format("{} vertices; accepted: 0 or more", spec.vertices));
  const auto is_vertex = [&](std::int32_t v) { return v >= 0 && v < spec.vertices; };
  for (std::size_t i = 0; i < spec.links.size(); ++i) {
    const auto& link = spec.links[i];
    if (!is_vertex(link.from) || !is_vertex(link.to))
      return wrong(fmt::format("link {} leads from vertex {} to {}; accepted: 0 to {}", i, link.from, link.to,
                               spec.vertices - 1));
    if (!(link.bytes_per_second > 0) || !(link.bytes_per_second <= 1e18) ||
        !(link.line_bytes_per_second >= link.bytes_per_second) || !(link.line_bytes_per_second <= 1e18))
      return wrong(
          fmt::format("link {} carries {:g} B/s, its line {:g} B/s; accepted: above 0, up to 1e18, the line not "
                      "below the rate",
                      i, link.bytes_per_second, link.line_bytes_per_second));
    if (link.latency < 0 || link.latency > kLongest || link.burst_bytes < 0)
      return wrong(
          fmt::format("link {} has a latency of {} ps and a burst of {} B; accepted: 0 or more, a second at "
                      "most",
                      i, link.latency, link.burst_bytes));
  }
  for (std::size_t i = 0; i < spec.endpoint.size(); ++i)
    if (!is_vertex(spec.endpoint[i]))
      return wrong(fmt::format("endpoint {} is vertex {}; accepted: 0 to {}", i, spec.endpoint[i], spec.vertices - 1));
  if (!spec.nic.empty() && (spec.nic.size() != spec.endpoint.size() || spec.vertex_host.empty()))
    return wrong(fmt::format("{} NICs of {} endpoints; accepted: one for each, and the vertices' hosts",
                             spec.nic.size(), spec.endpoint.size()));
  for (const auto vertex : spec.nic)
    if (vertex != -1 && !is_vertex(vertex))
      return wrong(fmt::format("a NIC is vertex {}; accepted: 0 to {}, or -1", vertex, spec.vertices - 1));
  if (!spec.vertex_host.empty() && spec.vertex_host.size() != static_cast<std::size_t>(spec.vertices))
    return wrong(
        fmt::format("{} hosts of {} vertices; accepted: one for each", spec.vertex_host.size(), spec.vertices));
  if (spec.queue_bytes < 0) return wrong(fmt::format("a queue of {} bytes; accepted: 0 or more", spec.queue_bytes));
  if (!spec.host.empty() && spec.host.size() != spec.endpoint.size())
    return wrong(
        fmt::format("{} hosts of {} endpoints; accepted: one for each", spec.host.size(), spec.endpoint.size()));
  for (std::size_t i = 0; i < spec.host.size(); ++i)
    if (spec.host[i] < 0 || static_cast<std::size_t>(spec.host[i]) >= spec.host_message.size())
      return wrong(fmt::format("endpoint {} is on host {}; accepted: 0 to {}", i, spec.host[i],
                               static_cast<std::int64_t>(spec.host_message.size()) - 1));
  for (std::size_t i = 0; i < spec.host_message.size(); ++i)
    if (spec.host_message[i] < 0)
      return wrong(fmt::format("host {} takes {} ps for a message; accepted: 0 or more", i, spec.host_message[i]));
  if (!spec.host_operation.empty() && spec.host_operation.size() != spec.host_message.size())
    return wrong(fmt::format("times of an operation on {} of {} hosts; accepted: on each", spec.host_operation.size(),
                             spec.host_message.size()));
  for (std::size_t i = 0; i < spec.host_operation.size(); ++i)
    if (spec.host_operation[i] < 0)
      return wrong(fmt::format("host {} takes {} ps for an operation; accepted: 0 or more", i, spec.host_operation[i]));
  if (!spec.host_bytes_per_second.empty() && spec.host_bytes_per_second.size() != spec.host_message.size())
    return wrong(fmt::format("rates of copying on {} of {} hosts; accepted: on each", spec.host_bytes_per_second.size(),
                             spec.host_message.size()));
  for (std::size_t i = 0; i < spec.host_bytes_per_second.size(); ++i)
    if (!(spec.host_bytes_per_second[i] > 0))
      return wrong(fmt::format("host {} copies {} B/s; accepted: above 0", i, spec.host_bytes_per_second[i]));
  if (!spec.host_processors.empty() && spec.host_processors.size() != spec.host_message.size())
    return wrong(fmt::format("processors of {} of {} hosts; accepted: of each", spec.host_processors.size(),
                             spec.host_message.size()));
  for (std::size_t i = 0; i < spec.host_processors.size(); ++i)
    if (spec.host_processors[i] < 1 || spec.host_processors[i] > 4096)
      return wrong(fmt::format("host {} has {} processors; accepted: 1 to 4096", i, spec.host_processors[i]));
  return {};
}

// Links by one of their ends: of[first[v]..first[v + 1]), ascending; those that `counts` says.
struct Incidence {
  std::vector<std::int32_t> first, of;
  template <typename Counts>
  Incidence(const TopologySpec& spec, std::int32_t Link::*end, Counts&& counts) : first(spec.vertices + 1) {
    for (const auto& link : spec.links)
      if (counts(link)) ++first[link.*end + 1];
    for (std::int32_t v = 0; v < spec.vertices; ++v) first[v + 1] += first[v];
    of.resize(first.back());
    auto next = first;
    for (std::size_t i = 0; i < spec.links.size(); ++i)
      if (counts(spec.links[i])) of[next[spec.links[i].*end]++] = static_cast<LinkId>(i);
  }
  std::span<const std::int32_t> operator[](std::int32_t v) const {
    return {of.data() + first[v], of.data() + first[v + 1]};
  }
};

// [vertices] its number among those that are no endpoints, or -1.
std::vector<std::int32_t> inner_numbers(const TopologySpec& spec) {
  std::vector<std::int32_t> numbers(spec.vertices, 0);
  for (const auto vertex : spec.endpoint) numbers[vertex] = -1;
  std::int32_t next = 0;
  for (auto& number : numbers)
    if (number == 0) number = next++;
  return numbers;
}

}  // namespace

constexpr std::int32_t kAnywhere = -2;  // in the place of a host: all vertices

struct Topology::Impl {
  explicit Impl(TopologySpec given)
      : spec(std::move(given)),
        inner(inner_numbers(spec)),
        inners(std::count_if(inner.begin(), inner.end(), [](auto number) { return number >= 0; })),
        out(spec, &Link::from, [](const Link&) { return true; }),
        out_inner(spec, &Link::from, [&](const Link& link) { return inner[link.to] >= 0; }),
        in(spec, &Link::to, [&](const Link& link) { return inner[link.from] >= 0; }),
        ways(spec.links.size()),
        recent(spec.endpoint.size() * kRecent) {}

  // A part of a way, over vertices of one host, or of none (-1), or all (kAnywhere).
  struct Leg {
    std::int32_t from, to, host;
  };
  std::vector<Leg> legs(int from, int to) const;
  // Nobody's way leads through an endpoint: all is among the inner vertices, and the ends of a leg.
  bool passes(std::int32_t vertex, const Leg& leg) const {
    return inner[vertex] >= 0 && (leg.host == kAnywhere || spec.vertex_host[vertex] == leg.host);
  }
  const std::vector<std::int64_t>& costs_to(const Leg& leg);
  std::int64_t cost_over(LinkId link, const Leg& leg, const std::vector<std::int64_t>& costs) const;
  void best_links(std::int32_t vertex, const Leg& leg, const std::vector<std::int64_t>& costs_of_leg,
                  std::vector<LinkId>& links) const;
  LinkId choice(const std::vector<LinkId>& equal, int from, int to) const;
  Result<std::vector<LinkId>> find(int from, int to);

  TopologySpec spec;
  std::vector<std::int32_t> inner;
  std::size_t inners;
  Incidence out, out_inner, in;    // all; to inner vertices; from inner vertices
  std::vector<std::int32_t> ways;  // [links] that have been found over it
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::int64_t>> costs;  // by destination and host
  std::unordered_map<std::uint64_t, std::vector<LinkId>> routes;                     // by both ends
  // In front of `routes`, as most endpoints send to few others: [endpoints x kRecent], by destination.
  struct Recent {
    std::int32_t to = -1;
    std::span<const LinkId> route;
  };
  static constexpr std::size_t kRecent = 4;
  std::vector<Recent> recent;
};

std::vector<Topology::Impl::Leg> Topology::Impl::legs(int from, int to) const {
  const auto source = spec.endpoint[from], destination = spec.endpoint[to];
  if (spec.vertex_host.empty()) return {{source, destination, kAnywhere}};
  const auto out_of = spec.vertex_host[source], into = spec.vertex_host[destination];
  if (out_of == into && out_of >= 0) return {{source, destination, out_of}};
  const auto leaves = spec.nic.empty() ? -1 : spec.nic[from], enters = spec.nic.empty() ? -1 : spec.nic[to];
  if (leaves < 0 || enters < 0) return {{source, destination, kAnywhere}};
  return {{source, leaves, out_of}, {leaves, enters, -1}, {enters, destination, into}};
}

LinkId Topology::Impl::choice(const std::vector<LinkId>& equal, int from, int to) const {
  if (spec.spread == Spread::kBalanced)
    return *std::min_element(equal.begin(), equal.end(), [&](LinkId a, LinkId b) { return ways[a] < ways[b]; });
  auto number = static_cast<std::uint64_t>(to);
  if (spec.spread == Spread::kHash)
    number = mixed(mixed(static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to)) +
                   static_cast<std::uint64_t>(spec.links[equal[0]].from));
  return equal[number % equal.size()];
}

// Of the best way to the end of a leg from every inner vertex: hops, then latency; kFar where there is none.
const std::vector<std::int64_t>& Topology::Impl::costs_to(const Leg& leg) {
  const auto key = std::pair(leg.to, leg.host);
  const auto known = costs.find(key);
  if (known != costs.end()) return known->second;
  if ((costs.size() + 1) * inners * sizeof(std::int64_t) > kCachedBytes) costs.clear();
  auto& cost = costs[key];
  cost.assign(inners, kFar);
  using Reached = std::pair<std::int64_t, std::int32_t>;
  std::priority_queue<Reached, std::vector<Reached>, std::greater<>> next;
  next.emplace(0, leg.to);
  if (inner[leg.to] >= 0) cost[inner[leg.to]] = 0;
  while (!next.empty()) {
    const auto [at, vertex] = next.top();
    next.pop();
    if (vertex != leg.to && at != cost[inner[vertex]]) continue;  // a longer way
    for (const auto link : in[vertex]) {
      const auto source = spec.links[link].from;
      const auto before = at + cost_of(spec.links[link]);
      if (!passes(source, leg) || before >= cost[inner[source]]) continue;
      next.emplace(cost[inner[source]] = before, source);
    }
  }
  return cost;
}

// Of the way to the end of the leg that begins with this link.
std::int64_t Topology::Impl::cost_over(LinkId link, const Leg& leg, const std::vector<std::int64_t>& costs) const {
  const auto reached = spec.links[link].to;
  if (reached == leg.to) return cost_of(spec.links[link]);
  if (!passes(reached, leg) || costs[inner[reached]] == kFar) return kFar;
  return costs[inner[reached]] + cost_of(spec.links[link]);
}

// The links by which the best ways to the end of the leg begin; none where there is no way. A switch may have tens of
// thousands of links to endpoints, of which only those to the leg's end matter: these are found from there.
void Topology::Impl::best_links(std::int32_t vertex, const Leg& leg, const std::vector<std::int64_t>& costs_of_leg,
                                std::vector<LinkId>& links) const {
  auto best = kFar;
  links.clear();
  const auto consider = [&](LinkId link) {
    const auto cost = cost_over(link, leg, costs_of_leg);
    if (cost == kFar || cost > best) return;
    if (cost < best) links.clear();
    best = cost;
    links.push_back(link);
  };
  if (inner[vertex] < 0) {
    for (const auto link : out[vertex]) consider(link);
    return;
  }
  for (const auto link : in[leg.to])
    if (spec.links[link].from == vertex) consider(link);
  if (!links.empty()) return;  // one hop is less than any more
  for (const auto link : out_inner[vertex]) consider(link);
}

Result<std::vector<LinkId>> Topology::Impl::find(int from, int to) {
  std::vector<LinkId> route, equal;
  for (const auto& leg : legs(from, to)) {
    const auto& costs_of_leg = costs_to(leg);
    for (auto vertex = leg.from; vertex != leg.to; vertex = spec.links[route.back()].to) {
      best_links(vertex, leg, costs_of_leg, equal);
      if (equal.empty()) return wrong(fmt::format("no way leads from endpoint {} to endpoint {}", from, to));
      route.push_back(choice(equal, from, to));
    }
  }
  for (const auto link : route) ++ways[link];
  return route;
}

Topology::Topology(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Topology::Topology(Topology&&) noexcept = default;
Topology& Topology::operator=(Topology&&) noexcept = default;
Topology::~Topology() = default;

Result<Topology> Topology::make(TopologySpec spec) {
  PRISM_RETURN_IF_ERROR(check(spec));
  return Topology(std::make_unique<Impl>(std::move(spec)));
}

Topology Topology::one_switch(int endpoints, double bytes_per_second, Picoseconds latency) {
  TopologySpec spec;
  spec.vertices = endpoints + 1;
  for (int i = 0; i < endpoints; ++i) {
    spec.endpoint.push_back(i);
    spec.links.push_back({i, endpoints, bytes_per_second, latency / 2, bytes_per_second, 0});
    spec.links.push_back({endpoints, i, bytes_per_second, latency - latency / 2, bytes_per_second, 0});
  }
  return Topology(std::make_unique<Impl>(std::move(spec)));
}

int Topology::endpoints() const { return static_cast<int>(impl_->spec.endpoint.size()); }
const std::vector<Link>& Topology::links() const { return impl_->spec.links; }
const TopologySpec& Topology::spec() const { return impl_->spec; }

Result<std::span<const LinkId>> Topology::route(int from, int to) const {
  if (from < 0 || from >= endpoints() || to < 0 || to >= endpoints())
    return wrong(fmt::format("a message from endpoint {} to {}; accepted: 0 to {}", from, to, endpoints() - 1));
  auto& recent =
      impl_->recent[static_cast<std::size_t>(from) * Impl::kRecent + static_cast<std::size_t>(to) % Impl::kRecent];
  if (recent.to == to) return recent.route;
  const auto key = static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to);
  auto known = impl_->routes.find(key);
  if (known == impl_->routes.end()) {
    PRISM_ASSIGN_OR_RETURN(auto found, impl_->find(from, to));
    known = impl_->routes.emplace(key, std::move(found)).first;
  }
  recent = {to, known->second};
  return recent.route;
}

}  // namespace prism::simulate
