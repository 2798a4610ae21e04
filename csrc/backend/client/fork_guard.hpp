// fork() in a rank (DataLoader workers, subprocesses): the child's copy of the session becomes inert, so that the child
// neither speaks for its parent nor ends its session. The only state that is shared by the sessions of a process.
#pragma once
#include "backend/client/rank_client.hpp"

namespace prism {

struct ForkGuard {
  static void add(RankClient::Impl& session);
  static void remove(RankClient::Impl& session);
};

}  // namespace prism
