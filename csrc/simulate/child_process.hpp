// Another program that is asked and answers in lines, over one socket that is its standard input and output. Killed and
// reaped by the destructor. One thread.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <string>

#include "core/result.hpp"

namespace prism::simulate {

class ChildProcess {
 public:
  // `program`: a path. `silence`: how long it may take to read, or to write the next line. kIo: it cannot be started.
  static Result<ChildProcess> start(const std::string& program, std::chrono::nanoseconds silence);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();

  // kPeerFailed: it has ended, with what it said last on standard error; kTimeout: it is silent.
  Result<void> write(std::string_view text);
  Result<std::string> read_line();

 private:
  ChildProcess(std::string name, std::chrono::nanoseconds silence) : name_(std::move(name)), silence_(silence) {}
  Result<void> wait_for(short events);
  Error ended();
  std::string last_words() const;

  std::string name_;
  std::chrono::nanoseconds silence_;
  pid_t pid_ = -1;
  int socket_ = -1, errors_ = -1;  // errors_: a file in memory, so that nobody has to read along
  std::string input_;              // what has been read and not handed out
  std::size_t taken_ = 0;          // of it
};

}  // namespace prism::simulate
