// The network of packets beside programs that are not what they should be; prism-ns3 itself is tested from Python.
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>

#include "catch2.hpp"
#include "folder.hpp"
#include "simulate/topologies.hpp"

using namespace prism;
using namespace prism::simulate;
using namespace prism::simulate::testing;

namespace {

// A script in the place of prism-ns3: what it does before it reads, and on each request to go on.
class Program {
 public:
  explicit Program(const std::string& on_advance, const std::string& first = "echo 'prism-ns3 1'") {
    prism::test::spit(path(), "#!/bin/sh\n" + first + "\nwhile read -r line; do case \"$line\" in advance*) " +
                                  on_advance + " ;; esac; done\n");
    chmod(path().c_str(), 0700);
  }
  std::string path() const { return folder_.path("prism-ns3"); }

 private:
  prism::test::Folder folder_;
};

const Topology kTwo = Topology::one_switch(2, 1e9, kMicrosecond);

// Of one message and the first time that goes on.
Result<std::vector<Delivery>> advanced(const Program& program,
                                       std::chrono::nanoseconds silence = std::chrono::minutes(1)) {
  PRISM_ASSIGN_OR_RETURN(auto network, packet_level(kTwo, program.path(), silence));
  PRISM_RETURN_IF_ERROR(network->send(0, {1, 0, 1, 1000}));
  std::vector<Delivery> delivered;
  PRISM_RETURN_IF_ERROR(network->advance(kMillisecond, delivered));
  return delivered;
}

bool no_child_is_left() { return waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD; }

}  // namespace

TEST_CASE("a program is asked in lines, and its deliveries are taken") {
  const auto delivered = advanced(Program("echo running; echo 'delivered 5 0'; echo 'now 5 1 1'"));
  REQUIRE(delivered);
  REQUIRE(delivered->size() == 1);
  CHECK(delivered->front().at == 5);
  CHECK(delivered->front().id == 1);
  CHECK(no_child_is_left());
}

TEST_CASE("a program that fails is one error, with its last words") {
  struct Case {
    const char* does;
    ErrorCode code;
    const char* says;
  };
  for (const auto& [does, code, says] : std::vector<Case>{
           {"echo first >&2; echo 'no memory left' >&2; exit 3", ErrorCode::kPeerFailed,
            "prism-ns3 ended with exit code 3: no memory left"},
           {"kill -9 $$", ErrorCode::kPeerFailed, "prism-ns3 was ended by signal 9 (Killed)"},
           {"echo 'error link 9; accepted: 0 to 3'; exit 2", ErrorCode::kInvalidInput,
            "prism-ns3: link 9; accepted: 0 to 3"},
           {"echo 'failed a connection broke'; exit 4", ErrorCode::kPeerFailed, "prism-ns3: a connection broke"},
       }) {
    const auto failed = advanced(Program(does));
    INFO(does);
    REQUIRE(!failed);
    CHECK(failed.error().code == code);
    CHECK(failed.error().message == says);
    CHECK(no_child_is_left());
  }
}

TEST_CASE("answers that cannot be are refused") {
  for (const char* answer :
       {"delivered 5 7", "delivered 5 0 1", "delivered 5", "delivered -5 0", "now 5 1", "now x 1 1", "now 1 1 1 1",
        "now 99999999999 1 1", "now 99999999999999999999999 1 1", "", "later"}) {
    INFO(answer);
    const auto refused = advanced(Program("echo '" + std::string(answer) + "'"));
    REQUIRE(!refused);
    CHECK(refused.error().code == ErrorCode::kPeerFailed);
  }
  const auto endless = advanced(Program("yes | tr -d '\\n'"));
  REQUIRE(!endless);
  CHECK(endless.error().message == "prism-ns3: a line of more than 65536 bytes");
}

TEST_CASE("a program that says nothing is not waited for without an end") {
  for (const char* first : {"echo 'prism-ns3 1'; exec sleep 1000", "exec sleep 1000"}) {
    const auto silent = advanced(Program("", first), std::chrono::milliseconds(100));
    REQUIRE(!silent);
    CHECK(silent.error().code == ErrorCode::kTimeout);
    CHECK(silent.error().message == "prism-ns3 has been silent for 0.1 s");
    CHECK(no_child_is_left());
  }
}

TEST_CASE("another program, or none, is named") {
  const Program greets("", "echo 'prism-ns3 2'");
  CHECK(packet_level(kTwo, greets.path()).error().message ==
        "prism-ns3 began with 'prism-ns3 2'; accepted: 'prism-ns3 1'");
  const prism::test::Folder folder;
  CHECK(packet_level(kTwo, folder.path("none")).error().message ==
        folder.path("none") + " cannot be started: No such file or directory");
  CHECK(no_child_is_left());
}

TEST_CASE("packets need a way back, and links without bursts") {
  const Program program("exit 0");
  const auto one_way = wired(2, 0, {{0, 1, 1e9, 0}});
  auto network = packet_level(one_way, program.path());
  REQUIRE(network);
  CHECK((*network)->send(0, {0, 0, 1, 1}).error().message == "no way leads from endpoint 1 to endpoint 0");
  CHECK((*network)->send(0, {0, 0, 1, -1}).error().message == "a message of -1 bytes; accepted: 0 or more");
  const auto burst = wired(2, 0, {{0, 1, 1e9, 0}, {1, 0, 1e9, 0, 2e9, 1000}});
  CHECK(packet_level(burst, program.path()).error().message ==
        "link 1 has a burst; accepted by the network ns3: links without");
}
