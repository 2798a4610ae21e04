// What the SimGrid programs here share: the network model, the star of hosts around a switch, how figures are printed.
#pragma once

#include <simgrid/s4u.hpp>  // first: the two others do not compile without it

#include <simgrid/version.h>
#include <xbt/log.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace peer {

namespace s4u = simgrid::s4u;

[[noreturn]] inline void fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(1);
}

// Flows share links max-min, a link's bandwidth is all usable, latency counts once. Call it once the engine exists.
inline void use_plain_max_min() {
  xbt_log_control_set("xbt_cfg.thresh:warning");
  for (const char* setting : {
           "network/model:CM02",          // the default, LV08, takes 13.01 times the latency and 97% of the bandwidth
           "network/bandwidth-factor:1",  // CM02's own values in these two lines; said so that nothing else can apply
           "network/latency-factor:1", "network/weight-S:0",
           "network/crosstraffic:0",  // else each flow takes 5% of its rate from the links of the way back
           "network/TCP-gamma:0",     // else no flow is faster than 4 MiB per round trip
           "surf/precision:1e-12",    // s; events within it happen together, and 1e-9 is 5% of a chunk of 1 KiB
           "contexts/stack-size:32",  // KiB per rank
       })
    s4u::Engine::set_config(setting);
}

// Ranks around one switch; a message takes its sender's `up` link and its receiver's `down` link, each used one way.
struct Star {
  std::vector<s4u::Host*> hosts;

  Star(int ranks, double bytes_per_second, double latency_s_per_message) {
    s4u::NetZone* zone = s4u::create_star_zone("switch");
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string name = std::to_string(rank);
      s4u::Host* host = zone->create_host(name, 1e9);
      auto link = [&](const char* direction) {
        s4u::Link* made = zone->create_link(direction + name, bytes_per_second);
        made->set_latency(latency_s_per_message / 2)->seal();
        return std::vector<s4u::LinkInRoute>{s4u::LinkInRoute(made)};
      };
      zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr, link("up "), false);
      zone->add_route(nullptr, host->get_netpoint(), nullptr, nullptr, link("down "), false);
      hosts.push_back(host);
    }
    zone->seal();
  }
};

// Messages from one rank to another that are received in the order of sending. A message sets out when it is sent,
// whether or not its receiver waits for it yet: without set_receiver SimGrid starts it once both sides are there.
class Channel {
 public:
  explicit Channel(const std::string& name) : mailbox_(s4u::Mailbox::by_name(name)) {}
  void received_by(const s4u::ActorPtr& rank) { mailbox_->set_receiver(rank); }
  s4u::CommPtr send(std::uint64_t bytes) {
    static char payload;
    return mailbox_->put_async(&payload, bytes);
  }
  void receive() { mailbox_->get<char>(); }

 private:
  s4u::Mailbox* mailbox_;
};

// Simulates until every rank has ended; the wall-clock seconds that it took.
inline double run(s4u::Engine& engine) {
  const auto start = std::chrono::steady_clock::now();
  engine.run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline void print_figure(std::FILE* file, const std::string& name, double value, const char* unit) {
  std::fprintf(file,
               R"({"name": "%s", "value": %.17g, "unit": "%s", "peer": "SimGrid %d.%d"})"
               "\n",
               name.c_str(), value, unit, SIMGRID_VERSION_MAJOR, SIMGRID_VERSION_MINOR);
}

}  // namespace peer
