// The engine's side of communications: whom each waits for, when its transfer starts and ends.
#include "replay/engine.hpp"

namespace prism::engine {

Engine::Queue& Engine::queue_of(std::uint32_t entry) {
  int rank = job_.entry_rank[entry];
  return queues_[job_.ranks[rank].queue_base + job_.view(rank).comm_group[job_.comm_of(entry)]];
}

void Engine::enqueue(std::uint32_t entry, std::int64_t at_ns) {
  auto& timeline = timelines[job_.entry_rank[entry]];
  std::uint32_t node = job_.transfer_node(entry);
  if (timeline.start_ns[node] != kUnset) return;  // a second edge from an issue
  timeline.start_ns[node] = at_ns;
  timeline.duration_ns[node] = -1;
  if (is_point_to_point(job_.op(entry))) return post_message(entry, at_ns);
  Queue& queue = queue_of(entry);
  if (queue.idle_workers > 0) {
    --queue.idle_workers;
    return taken_up(entry, at_ns);
  }
  (queue.head == kNone ? queue.head : next_in_queue_[queue.tail]) = entry;
  queue.tail = entry;
}

void Engine::taken_up(std::uint32_t entry, std::int64_t at_ns) {
  taken_up_ns_[entry] = at_ns;
  carrier_.came(entry, at_ns, ended_);
  const Collective& collective = job_.collectives[job_.meets[entry]];
  std::uint32_t missing = --still_missing_[job_.meets[entry]];
  StartRule rule = job_.model.rule(collective.op);
  if (rule != StartRule::kLastMember) {
    carrier_.taken_up(entry, at_ns, ended_);
    std::uint32_t root = static_cast<std::uint32_t>(collective.root);
    return join_tree(collective, (job_.entry_member[entry] + collective.size - root) % collective.size, at_ns);
  }
  if (missing > 0) return;
  for (std::uint32_t m = 0; m < collective.size; ++m)
    if (std::uint32_t other = job_.member_entry[collective.member_base + m]; is_entry(other))
      start_transfer(other, at_ns);
}

// `member`, counted from the root, has come: it may be what its parent, itself, and all behind it lacked.
void Engine::join_tree(const Collective& collective, std::uint32_t member, std::int64_t at_ns) {
  Tree tree{job_.model.rule(collective.op), collective.size};
  auto entry = [&](std::uint32_t v) { return job_.entry_at(collective, v); };
  auto has_data = [&](std::uint32_t v) {
    while (v != 0 && has_come(entry(v))) v = tree.parent(v);
    return v == 0 && has_come(entry(0));
  };
  auto start_if_ready = [&](std::uint32_t v) {
    if (!is_entry(entry(v)) || !has_come(entry(v)) || transfer_start_ns[entry(v)] != kUnset) return;
    bool ready = has_data(v);
    if (v == 0 && tree.rule == StartRule::kStar)
      ready = still_missing_[job_.meets[entry(v)]] == 0;
    else if (ready)
      tree.children(v, [&](std::uint32_t child) { ready = ready && has_come(entry(child)); });
    if (ready) start_transfer(entry(v), at_ns);
  };
  if (member != 0) start_if_ready(tree.parent(member));
  if (!has_data(member)) return;
  std::vector<std::uint32_t> reached{member};
  while (!reached.empty()) {
    std::uint32_t v = reached.back();
    reached.pop_back();
    start_if_ready(v);
    tree.children(v, [&](std::uint32_t child) {
      if (has_come(entry(child))) reached.push_back(child);
    });
  }
}

void Engine::post_message(std::uint32_t entry, std::int64_t at_ns) {
  taken_up_ns_[entry] = at_ns;
  int peer = job_.peer(entry);
  bool sends = job_.op(entry) == Op::kSend;
  if (!sends) carrier_.posted(entry, at_ns);
  if (peer >= 0 && job_.ranks[peer].cls < 0)
    return sends ? start_message(entry, kNone, at_ns) : start_message(kNone, entry, at_ns);
  Mailbox& mailbox = mailboxes_[job_.meets[entry]];
  Message message{entry, sends ? job_.entry_rank[entry] : peer};
  if (auto other = sends ? mailbox.post_send(message) : mailbox.post_receive(message))
    start_message(sends ? entry : other->entry, sends ? other->entry : entry, at_ns);
}

void Engine::start_message(std::uint32_t send, std::uint32_t receive, std::int64_t at_ns) {
  for (const auto entry : {send, receive})
    if (entry != kNone) transfer_start_ns[entry] = at_ns;
  carrier_.start_message(send, receive, at_ns, ended_);
}

void Engine::start_transfer(std::uint32_t entry, std::int64_t at_ns) {
  transfer_start_ns[entry] = at_ns;
  carrier_.start(entry, at_ns, ended_);
}

void Engine::transfer_ended(std::uint32_t entry, std::int64_t at_ns) {
  int rank = job_.entry_rank[entry];
  std::uint32_t node = job_.transfer_node(entry);
  auto& timeline = timelines[rank];
  timeline.duration_ns[node] = at_ns - timeline.start_ns[node];
  // With another algorithm than the rule's own tree a part may end although the rule still waits for somebody.
  if (transfer_start_ns[entry] == kUnset) transfer_start_ns[entry] = taken_up_ns_[entry];
  if (outside_[rank])
    released_.push_back({rank, job_.comm_of(entry), at_ns});
  else
    source_ended(rank, node);
  if (is_point_to_point(job_.op(entry))) return;
  Queue& queue = queue_of(entry);
  if (queue.head == kNone) {
    ++queue.idle_workers;
    return;
  }
  std::uint32_t next = queue.head;
  queue.head = next_in_queue_[next];
  taken_up(next, at_ns);
}

}  // namespace prism::engine
