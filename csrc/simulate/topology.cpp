#include "simulate/topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <utility>

namespace prism::simulate {
namespace {

constexpr std::int32_t kFar = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kCachedBytes = std::size_t{256} << 20;  // of distances

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
          fmt::format("link {} carries {} B/s, its line {} B/s; accepted: above 0, up to 1e18, the line not "
                      "below the rate",
                      i, link.bytes_per_second, link.line_bytes_per_second));
    if (link.latency < 0 || link.burst_bytes < 0)
      return wrong(fmt::format("link {} has a latency of {} ps and a burst of {} B; accepted: 0 or more", i,
                               link.latency, link.burst_bytes));
  }
  for (std::size_t i = 0; i < spec.endpoint.size(); ++i)
    if (!is_vertex(spec.endpoint[i]))
      return wrong(fmt::format("endpoint {} is vertex {}; accepted: 0 to {}", i, spec.endpoint[i], spec.vertices - 1));
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
  return {};
}

// Links by one of their ends: of[first[v]..first[v + 1]), ascending. Without those whose other end `leaves` out.
struct Incidence {
  std::vector<std::int32_t> first, of;
  Incidence(const TopologySpec& spec, std::int32_t Link::*end, std::int32_t Link::*other,
            const std::vector<bool>& leaves)
      : first(spec.vertices + 1) {
    const auto counts = [&](const Link& link) { return leaves.empty() || !leaves[link.*other]; };
    for (const auto& link : spec.links) first[link.*end + 1] += counts(link);
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

}  // namespace

struct Topology::Impl {
  explicit Impl(TopologySpec given)
      : spec(std::move(given)),
        is_endpoint(endpoints_of(spec)),
        in(spec, &Link::to, &Link::from, {}),
        from_inner(spec, &Link::to, &Link::from, is_endpoint),
        to_inner(spec, &Link::from, &Link::to, is_endpoint) {
    std::int32_t count = 0;
    for (std::int32_t v = 0; v < spec.vertices; ++v) inner.push_back(is_endpoint[v] ? kFar : count++);
    inner_count = count;
  }

  static std::vector<bool> endpoints_of(const TopologySpec& spec) {
    std::vector<bool> is(spec.vertices);
    for (const auto vertex : spec.endpoint) is[vertex] = true;
    return is;
  }
  const std::vector<std::int32_t>& distances_to(std::int32_t destination);
  Result<std::vector<LinkId>> find(int from, int to);

  TopologySpec spec;
  std::vector<bool> is_endpoint;
  Incidence in, from_inner, to_inner;  // by vertex: links to it, those of inner vertices, its own to inner vertices
  std::vector<std::int32_t> inner;     // [vertices] number among those that are no endpoints
  std::size_t inner_count = 0;
  std::unordered_map<std::int32_t, std::vector<std::int32_t>> distances;  // by destination, of inner vertices
  std::unordered_map<std::uint64_t, std::vector<LinkId>> routes;          // by both ends
};

// Hops to the destination from every inner vertex, kFar where there is no way: ways lead through no endpoint, and
// switches with thousands of them are not searched.
const std::vector<std::int32_t>& Topology::Impl::distances_to(std::int32_t destination) {
  const auto known = distances.find(destination);
  if (known != distances.end()) return known->second;
  if ((distances.size() + 1) * inner_count * sizeof(std::int32_t) > kCachedBytes) distances.clear();
  auto& hops = distances[destination];
  hops.assign(inner_count, kFar);
  std::deque<std::int32_t> next{destination};
  while (!next.empty()) {
    const auto vertex = next.front();
    next.pop_front();
    const auto further = vertex == destination ? 1 : hops[inner[vertex]] + 1;
    for (const auto link : from_inner[vertex]) {
      auto& of_source = hops[inner[spec.links[link].from]];
      if (of_source != kFar) continue;
      of_source = further;
      next.push_back(spec.links[link].from);
    }
  }
  return hops;
}

Result<std::vector<LinkId>> Topology::Impl::find(int from, int to) {
  const auto source = spec.endpoint[from], destination = spec.endpoint[to];
  if (source == destination) return std::vector<LinkId>{};
  const auto& hops = distances_to(destination);
  std::int32_t left = kFar;
  for (const auto link : in[destination])
    if (spec.links[link].from == source) left = 1;
  for (const auto link : to_inner[source])
    if (const auto further = hops[inner[spec.links[link].to]]; further != kFar) left = std::min(left, further + 1);
  if (left == kFar) return wrong(fmt::format("no way leads from endpoint {} to endpoint {}", from, to));
  std::vector<LinkId> route, equal;
  for (auto vertex = source; vertex != destination; vertex = spec.links[route.back()].to, --left) {
    equal.clear();
    for (const auto link : left == 1 ? in[destination] : to_inner[vertex])
      if (left == 1 ? spec.links[link].from == vertex : hops[inner[spec.links[link].to]] == left - 1)
        equal.push_back(link);
    auto choice = static_cast<std::uint64_t>(to);
    if (spec.spread == Spread::kHash)
      choice = mixed(mixed(static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to)) +
                     static_cast<std::uint64_t>(vertex));
    route.push_back(equal[choice % equal.size()]);
  }
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
  const auto key = static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to);
  auto known = impl_->routes.find(key);
  if (known == impl_->routes.end()) {
    PRISM_ASSIGN_OR_RETURN(auto found, impl_->find(from, to));
    known = impl_->routes.emplace(key, std::move(found)).first;
  }
  return std::span<const LinkId>(known->second);
}

}  // namespace prism::simulate
