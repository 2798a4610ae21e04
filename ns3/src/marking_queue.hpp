// SPDX-License-Identifier: GPL-2.0-only
// What waits for a link: acknowledgements first, as in a traffic class of their own, then data in their order.
#pragma once
#include <ns3/traffic-control-module.h>

namespace prism_ns3 {

// Data are marked while more wait than a threshold (DCTCP's step). Nothing is lost, as on networks with credits or
// pauses; marks keep queues short. If acknowledgements waited behind data, two endpoints that send to each other would
// stop at the end of each window until the queues between them are empty.
class MarkingQueue final : public ns3::QueueDisc {
 public:
  static ns3::TypeId GetTypeId();
  MarkingQueue() : QueueDisc(ns3::QueueDiscSizePolicy::NO_LIMITS) {}

  // No connection is marked for what its own window lets it send at once.
  void hold(std::uint32_t packets) { threshold_ = std::max(threshold_, packets); }

 private:
  bool DoEnqueue(ns3::Ptr<ns3::QueueDiscItem> item) override;
  ns3::Ptr<ns3::QueueDiscItem> DoDequeue() override;
  bool CheckConfig() override;
  void InitializeParams() override {}

  // Packets. DCTCP's for links of 10 Gb/s ("Data Center TCP", SIGCOMM 2010, section 3.4).
  std::uint32_t threshold_ = 65;
};

}  // namespace prism_ns3
