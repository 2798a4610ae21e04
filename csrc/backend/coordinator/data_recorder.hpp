// Records the tensors of complete operations, for `prism capture --data`: a queue before the one thread that hashes and
// writes. Large tensors stay where they are until they are written, so that ranks wait for nothing and nothing is
// copied; what is small is copied, and many such operations are handed over together. Loop thread, but for the writing
// itself.
#pragma once
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "backend/coordinator/exchange.hpp"
#include "core/result.hpp"
#include "data/writer.hpp"

namespace prism {

class DataRecorder {
 public:
  // `whole_numbers`: other tensors are passed over.
  // `written` is called on the loop, after what was written has been let go: with the first error, or none.
  // `backlog_limit`: bytes that may wait before behind() says so.
  DataRecorder(boost::asio::io_context& loop, DataWriter::Options options, bool whole_numbers,
               std::uint64_t backlog_limit, std::function<void(const Result<void>&)> written);
  ~DataRecorder();

  // `blocks` lie in memory that does not change as long as `holds` are kept; released on the loop.
  void record(const Exchange& exchange, std::vector<RecordedBlock> blocks, std::vector<std::shared_ptr<void>> holds);
  bool behind() const { return backlog_bytes_ >= backlog_limit_; }
  // Hands over what waits for company; whether all is written.
  bool drain();
  // What is not written yet will not be.
  void cancel() { canceled_ = true; }
  // Ends the thread; after that finish() completes the folder, on any thread.
  void join();
  Result<void> finish() { return writer_.finish(); }
  DataWriter::Statistics statistics() const { return writer_.statistics(); }  // after join()

 private:
  struct Job {
    RecordedComm comm;
    std::vector<RecordedBlock> blocks;
    std::vector<std::byte> copy;
    std::vector<std::shared_ptr<void>> holds;
    std::uint64_t bytes = 0;
  };
  void hand_over();
  Result<void> write(const std::vector<Job>& jobs);

  boost::asio::io_context& loop_;
  DataWriter writer_;
  const bool whole_numbers_;
  const std::uint64_t backlog_limit_;
  const std::function<void(const Result<void>&)> written_;
  std::vector<Job> waiting_;
  std::uint64_t waiting_bytes_ = 0, backlog_bytes_ = 0;
  std::size_t handed_over_ = 0;  // batches that are not written yet
  std::atomic<bool> canceled_ = false;
  boost::asio::thread_pool thread_{1};
};

}  // namespace prism
