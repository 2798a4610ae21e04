// SPDX-License-Identifier: GPL-2.0-only
#include "marking_queue.hpp"

#include <ns3/drop-tail-queue.h>
#include <ns3/tcp-header.h>

namespace prism_ns3 {
namespace {

constexpr std::size_t kAcknowledgements = 0, kData = 1;
constexpr std::uint32_t kLongestHeaders = 20 + 60;  // bytes of IP, and of TCP with all options
constexpr const char *kEndless = "4294967295p", *kMarked = "threshold";

bool has_data(const ns3::Ptr<ns3::QueueDiscItem>& item) {
  if (item->GetSize() > kLongestHeaders) return true;
  ns3::TcpHeader tcp;
  return item->GetPacket()->PeekHeader(tcp) < item->GetPacket()->GetSize();
}

}  // namespace

ns3::TypeId MarkingQueue::GetTypeId() {
  static const auto id =
      ns3::TypeId("prism_ns3::MarkingQueue").SetParent<ns3::QueueDisc>().AddConstructor<MarkingQueue>();
  return id;
}

bool MarkingQueue::DoEnqueue(ns3::Ptr<ns3::QueueDiscItem> item) {
  if (!has_data(item)) return GetInternalQueue(kAcknowledgements)->Enqueue(item);
  if (GetInternalQueue(kData)->GetNPackets() > threshold_) Mark(item, kMarked);
  return GetInternalQueue(kData)->Enqueue(item);
}

ns3::Ptr<ns3::QueueDiscItem> MarkingQueue::DoDequeue() {
  if (auto item = GetInternalQueue(kAcknowledgements)->Dequeue()) return item;
  return GetInternalQueue(kData)->Dequeue();
}

bool MarkingQueue::CheckConfig() {
  using Queue = ns3::DropTailQueue<ns3::QueueDiscItem>;
  while (GetNInternalQueues() <= kData)
    AddInternalQueue(ns3::CreateObjectWithAttributes<Queue>("MaxSize", ns3::QueueSizeValue(ns3::QueueSize(kEndless))));
  return true;
}

}  // namespace prism_ns3
