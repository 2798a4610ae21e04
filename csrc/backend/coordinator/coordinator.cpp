#include "backend/coordinator/coordinator.hpp"

#include "backend/coordinator/loop.hpp"

namespace prism {

Coordinator::Coordinator(Options options, std::shared_ptr<Executor> executor)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(executor))) {}
Coordinator::~Coordinator() = default;
Result<void> Coordinator::run() { return impl_->run(); }
void Coordinator::abort(Error error) { impl_->abort(std::move(error)); }
std::string Coordinator::statistics_json() const { return impl_->statistics_json(); }

}  // namespace prism
