// Vertices and directed links, and the way from one endpoint to another. Endpoints are where messages begin and end (a
// rank's device); no way leads through one of another rank.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/result.hpp"
#include "simulate/picoseconds.hpp"

namespace prism::simulate {

using LinkId = std::int32_t;

// What passes in t: min(line x t, burst + rate x t). Without a burst the line's rate is the sustained one.
struct Link {
  std::int32_t from = 0, to = 0;  // vertices
  double bytes_per_second = 0;    // sustained
  Picoseconds latency = 0;
  double line_bytes_per_second = 0;
  std::int64_t burst_bytes = 0;
  bool has_burst() const { return burst_bytes > 0 && line_bytes_per_second > bytes_per_second; }
};

// Which of several shortest ways. Balanced: link by link the one that fewest ways use so far, as an adaptive network or
// a subnet manager that knows the traffic would; it depends on the order in which ways are first asked for.
// Destination: by the destination's number (D-mod-k). Hash: of both ends (ECMP), with its collisions.
enum class Spread { kBalanced, kDestination, kHash };

struct TopologySpec {
  std::int32_t vertices = 0;
  std::vector<Link> links;
  std::vector<std::int32_t> endpoint;  // [endpoints] vertex
  // Where given, a way between hosts leaves and enters through the endpoints' own NICs, and one within a host stays in
  // it.
  std::vector<std::int32_t> nic;              // [endpoints] vertex, -1: none
  std::vector<std::int32_t> vertex_host;      // [vertices] -1: of none, a switch between hosts
  std::vector<std::int32_t> host;             // [endpoints] whose processors its messages take; empty: none
  std::vector<Picoseconds> host_message;      // [hosts] time of a message on the sender's and on the receiver's
  std::vector<Picoseconds> host_operation;    // [hosts] time of an operation at each member; empty: none
  std::vector<double> host_bytes_per_second;  // [hosts] at which a processor copies; empty: it takes no time
  std::vector<std::int32_t> host_processors;  // [hosts] so many of these at a time; empty: one
  // What a host says while it sends (that a receiver is ready) waits behind so much of that: what is in its queue.
  std::int64_t queue_bytes = 0;
  Spread spread = Spread::kBalanced;
};

class Topology {
 public:
  // kInvalidInput: an index out of range, a rate that is not positive, a latency or burst below zero.
  static Result<Topology> make(TopologySpec spec);
  // N endpoints on one switch that does not block: a link up and a link down each, with half of the latency.
  static Topology one_switch(int endpoints, double bytes_per_second, Picoseconds latency);

  Topology(Topology&&) noexcept;
  Topology& operator=(Topology&&) noexcept;
  ~Topology();

  int endpoints() const;
  const std::vector<Link>& links() const;
  const TopologySpec& spec() const;
  // The links from `from` to `to`, none where they are one vertex; fewest hops, then least latency. Kept: the same span
  // the next time.
  // kInvalidInput where no way leads there. Not from several threads at once.
  Result<std::span<const LinkId>> route(int from, int to) const;

 private:
  struct Impl;
  explicit Topology(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace prism::simulate
