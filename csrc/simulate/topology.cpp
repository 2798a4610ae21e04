#include "simulate/topology.hpp"

#include <fmt/format.h>

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
      return wrong(fmt::format("link {} carries {} B/s, its line {} B/s; accepted: above 0, up to 1e18, the line not "
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
    return wrong(fmt::format("{} hosts of {} endpoints; accepted: one for each", spec.host.size(),
                             spec.endpoint.size()));
  for (std::size_t i = 0; i < spec.host.size(); ++i)
    if (spec.host[i] < 0 || static_cast<std::size_t>(spec.host[i]) >= spec.host_message.size())
      return wrong(fmt::format("endpoint {} is on host {}; accepted: 0 to {}", i, spec.host[i],
                               static_cast<std::int64_t>(spec.host_message.size()) - 1));
  for (std::size_t i = 0; i < spec.host_message.size(); ++i)
    if (spec.host_message[i] < 0)
      return wrong(fmt::format("host {} takes {} ps for a message; accepted: 0 or more", i, spec.host_message[i]));
  return {};
}

// Links by one of their ends: of[first[v]..first[v + 1]), ascending.
struct Incidence {
  std::vector<std::int32_t> first, of;
  Incidence(const TopologySpec& spec, std::int32_t Link::* end) : first(spec.vertices + 1), of(spec.links.size()) {
    for (const auto& link : spec.links) ++first[link.*end + 1];
    for (std::int32_t v = 0; v < spec.vertices; ++v) first[v + 1] += first[v];
    auto next = first;
    for (std::size_t i = 0; i < spec.links.size(); ++i) of[next[spec.links[i].*end]++] = static_cast<LinkId>(i);
  }
  std::span<const std::int32_t> operator[](std::int32_t v) const {
    return {of.data() + first[v], of.data() + first[v + 1]};
  }
};

}  // namespace

struct Topology::Impl {
  explicit Impl(TopologySpec given)
      : spec(std::move(given)), out(spec, &Link::from), in(spec, &Link::to), is_endpoint(spec.vertices) {
    for (const auto vertex : spec.endpoint) is_endpoint[vertex] = true;
  }

  const std::vector<std::int32_t>& distances_to(std::int32_t destination);
  Result<std::vector<LinkId>> find(int from, int to);

  TopologySpec spec;
  Incidence out, in;
  std::vector<bool> is_endpoint;
  std::unordered_map<std::int32_t, std::vector<std::int32_t>> distances;  // by destination
  std::unordered_map<std::uint64_t, std::vector<LinkId>> routes;          // by both ends
};

// Hops to the destination from every vertex, kFar where there is no way.
const std::vector<std::int32_t>& Topology::Impl::distances_to(std::int32_t destination) {
  const auto known = distances.find(destination);
  if (known != distances.end()) return known->second;
  if ((distances.size() + 1) * spec.vertices * sizeof(std::int32_t) > kCachedBytes) distances.clear();
  auto& hops = distances[destination];
  hops.assign(spec.vertices, kFar);
  hops[destination] = 0;
  std::deque<std::int32_t> next{destination};
  while (!next.empty()) {
    const auto vertex = next.front();
    next.pop_front();
    if (is_endpoint[vertex] && vertex != destination) continue;  // no transit
    for (const auto link : in[vertex]) {
      auto& of_source = hops[spec.links[link].from];
      if (of_source != kFar) continue;
      of_source = hops[vertex] + 1;
      next.push_back(spec.links[link].from);
    }
  }
  return hops;
}

Result<std::vector<LinkId>> Topology::Impl::find(int from, int to) {
  const auto source = spec.endpoint[from], destination = spec.endpoint[to];
  const auto& hops = distances_to(destination);
  if (hops[source] == kFar) return wrong(fmt::format("no way leads from endpoint {} to endpoint {}", from, to));
  std::vector<LinkId> route, equal;
  for (auto vertex = source; vertex != destination; vertex = spec.links[route.back()].to) {
    equal.clear();
    for (const auto link : out[vertex]) {
      const auto reached = spec.links[link].to;
      if (hops[reached] == hops[vertex] - 1 && (reached == destination || !is_endpoint[reached])) equal.push_back(link);
    }
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
