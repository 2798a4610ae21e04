// prismllm._c10d: the only file that knows both pybind11 and c10d.
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/jit/python/pybind_utils.h>

#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include "backend/c10d/backend.hpp"
#include "backend/c10d/cpu_allocator.hpp"
#include "backend/c10d/memory_limit.hpp"
#include "backend/c10d/recording.hpp"
#include "backend/c10d/session.hpp"
#include "backend/c10d/solo.hpp"
#include "backend/c10d/store.hpp"
#include "backend/c10d/tensors.hpp"
#include "backend/client/heap.hpp"
#include "backend/coordinator/coordinator.hpp"
#include "backend/device/cuda_device_swap.hpp"
#include "backend/device/fake_device_swap.hpp"
#include "backend/executor/aten_executor.hpp"
#include "backend/relay/relay.hpp"
#include "core/deadline.hpp"
#include "python_errors.hpp"

namespace py = pybind11;

namespace prism {
namespace {

GroupInfo make_group(std::string backend, std::string key, int rank, std::vector<std::int32_t> members) {
  TORCH_CHECK(rank >= 0 && rank < static_cast<int>(members.size()), "group '", key, "': rank ", rank,
              " is not below the group's size ", members.size());
  return {std::move(backend), std::move(key), rank, std::move(members)};
}

// Sleeps in `blocking`, a Python call that waits for `future` and releases the GIL itself.
py::object wait_future(const std::shared_ptr<torch::jit::PythonFutureWrapper>& future, const py::function& blocking) {
  py::object result;
  std::exception_ptr failure;
  const auto call = [&] {
    const py::gil_scoped_acquire gil;
    try {
      result = blocking();
    } catch (...) {
      failure = std::current_exception();
    }
  };
  {
    const py::gil_scoped_release no_gil;
    WaitScope scope;
    if (Recorder::active())
      for (const auto comm : take_unwaited_futures(future->fut.get())) scope.add(comm);
    auto* client = session_client();
    if (client && !future->fut->completed())
      client->without_slot(call);
    else
      call();
  }
  if (failure) std::rethrow_exception(failure);
  return result;
}

void start_recorder(int rank, int world_size, const std::string& path, bool timed, const std::string& progress_model,
                    const std::string& metadata, const std::string& clock, std::optional<std::int64_t> memory_limit) {
  Recorder::Options options;
  options.rank = rank;
  options.world_size = world_size;
  options.path = path;
  options.timed = timed;
  options.progress_model = progress_model;
  options.metadata_json = metadata;
  options.memory_limit = memory_limit.value_or(kNoMemoryLimit);
  if (clock != "slot" && clock != "own" && clock != "wall")
    throw std::invalid_argument("clock '" + clock + "'; accepted: slot, own, wall");
  if (auto* client = session_client(); client && clock == "slot")
    options.clock = [client] { return client->emulated_now_ns(); };
  else if (client && clock == "own")
    options.clock = [client] { return now_ns() - client->waiting_ns(); };
  value_or_throw(without_gil([&] { return Recorder::start(std::move(options)); }));
}

// `changed(bytes)`: see tell_communicator_memory().
void start_communicators(int rank, int ranks_per_node, std::optional<std::int64_t> each, const py::object& changed) {
  count_communicators({.rank = rank, .ranks_per_node = std::max(ranks_per_node, 1), .each = each.value_or(-1)});
  if (changed.is_none()) return;
  auto* function = new py::function(changed);  // for the life of the process
  tell_communicator_memory([function](std::int64_t bytes) {
    if (!Py_IsInitialized()) return;
    const py::gil_scoped_acquire gil;
    (*function)(bytes);
  });
}

py::object memory_in_use() {
  const auto* recorder = Recorder::active();
  if (!recorder) return py::none();
  const auto in_use = recorder->memory_in_use();
  py::dict told;
  told["tensors"] = in_use.tensors;
  told["tensors_peak"] = in_use.tensors_peak;
  told["communicators"] = in_use.communicators;
  told["communicators_peak"] = in_use.communicators_peak;
  told["peak"] = in_use.peak;
  return told;
}

// What AtenExecutor makes of the members' tensors, given in rank order.
at::Tensor reduce_tensors(const std::vector<at::Tensor>& inputs, const std::string& reduce_op) {
  const auto op = reduce_op_from_name(reduce_op);
  if (!op || inputs.empty())
    throw std::invalid_argument("reduce_tensors: '" + reduce_op + "' of " + std::to_string(inputs.size()) + " tensors");
  auto output = at::empty_like(inputs[0]);
  ReducePiece piece;
  for (const auto& input : inputs) {
    TORCH_CHECK(input.is_cpu() && input.is_contiguous() && input.numel() == output.numel() &&
                    input.scalar_type() == output.scalar_type(),
                "reduce_tensors: accepted are contiguous CPU tensors of one type and size");
    piece.inputs.push_back(static_cast<const std::byte*>(input.const_data_ptr()));
  }
  piece.output = static_cast<std::byte*>(output.mutable_data_ptr());
  piece.numel = output.numel();
  if (auto done = AtenExecutor().reduce(dtype_of(output.scalar_type()), *op, {&piece, 1}); !done)
    throw std::invalid_argument(done.error().message);
  return output;
}

// `communication(group, members, group_rank, op, reduce_op, root, peer, tag, number, inputs, outputs)` -> (tensors,
// source); `store_key(key)` -> bytes or None; `absent_key(key)` raises.
void answer_with(py::function communication, py::function store_key, py::function absent_key, bool quick) {
  // For the life of the process: they may be called until the very end.
  struct Functions {
    py::function communication, store_key, absent_key;
  };
  auto* functions = new Functions{std::move(communication), std::move(store_key), std::move(absent_key)};
  Answerer answerer;
  answerer.quick = quick;
  answerer.communication = [functions](const Question& q) {
    const py::gil_scoped_acquire gil;
    const auto answer =
        functions->communication(q.group.key, q.group.members, q.group.rank, name(q.op), name(q.reduce_op), q.root,
                                 q.peer, q.tag, q.number, q.inputs, q.outputs);
    auto [outputs, source] = answer.cast<std::pair<std::vector<at::Tensor>, int>>();
    return Reply{std::move(outputs), source};
  };
  answerer.store_key = [functions](const std::string& key) -> std::optional<std::vector<std::uint8_t>> {
    const py::gil_scoped_acquire gil;
    const auto value = functions->store_key(key).cast<std::optional<std::string>>();
    if (!value) return std::nullopt;
    return std::vector<std::uint8_t>(value->begin(), value->end());
  };
  answerer.absent_key = [functions](const std::string& key) {
    const py::gil_scoped_acquire gil;
    functions->absent_key(key);
  };
  run_solo(std::move(answerer));
}

std::chrono::nanoseconds seconds(double seconds) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

// name, ranks, slots, the relay's proof, ours
using HostTuple = std::tuple<std::string, int, int, std::string, std::string>;

std::unique_ptr<Coordinator> make_coordinator(std::string address, int world_size, int slots,
                                              std::uint64_t memory_budget_bytes, std::string spill_directory,
                                              bool must_spill, const std::string& schedule, std::string data_directory,
                                              std::optional<std::vector<std::int32_t>> data_for_ranks,
                                              const std::vector<HostTuple>& hosts, int link_fd, double host_timeout_s,
                                              std::vector<int> device_of_rank, std::shared_ptr<DeviceSwap> device_swap,
                                              bool swap_always, int more_ranks_fd, bool data_of_whole_numbers,
                                              std::shared_ptr<Emulation> emulation, std::string emulation_data,
                                              bool check_values, std::uint64_t data_limit_bytes) {
  if (schedule != "need" && schedule != "round-robin")
    throw std::invalid_argument("schedule '" + schedule + "'; accepted: need, round-robin");
  Coordinator::Options options;
  options.schedule = schedule == "need" ? Schedule::kByNeed : Schedule::kRoundRobin;
  options.address = std::move(address);
  options.world_size = world_size;
  options.slots = slots;
  options.memory_budget_bytes = memory_budget_bytes;
  options.spill_directory = std::move(spill_directory);
  options.must_spill = must_spill;
  options.device_of_rank = std::move(device_of_rank);
  if (device_swap) options.swap_mode = swap_always ? SwapMode::kAlways : SwapMode::kAuto;
  options.device_swap = std::move(device_swap);
  for (const auto& [name, ranks, host_slots, proof, our_proof] : hosts)
    options.hosts.push_back({name, ranks, host_slots, proof, our_proof});
  options.link_fd = link_fd;
  options.more_ranks_fd = more_ranks_fd;
  options.host_timeout = seconds(host_timeout_s);
  options.data_directory = std::move(data_directory);
  options.data_for_ranks = std::move(data_for_ranks);
  options.data_of_whole_numbers = data_of_whole_numbers;
  options.emulation = std::move(emulation);
  options.emulation_data = std::move(emulation_data);
  options.check_values = check_values;
  options.data_limit_bytes = data_limit_bytes;
  return std::make_unique<Coordinator>(std::move(options), std::make_shared<AtenExecutor>());
}

std::unique_ptr<Relay> make_relay(std::string address, int link_fd, int host, int world_size, int first_rank, int ranks,
                                  std::string proof, std::string coordinators_proof, std::uint64_t memory_budget_bytes,
                                  std::string spill_directory, bool must_spill, double host_timeout_s) {
  Relay::Options options;
  options.address = std::move(address);
  options.link_fd = link_fd;
  options.host = host;
  options.world_size = world_size;
  options.first_rank = first_rank;
  options.ranks = ranks;
  options.proof = std::move(proof);
  options.coordinators_proof = std::move(coordinators_proof);
  options.memory_budget_bytes = memory_budget_bytes;
  options.spill_directory = std::move(spill_directory);
  options.must_spill = must_spill;
  options.host_timeout = seconds(host_timeout_s);
  return std::make_unique<Relay>(std::move(options));
}

// The driver, or a test's script in its place; an OSError says why it cannot swap.
std::shared_ptr<DeviceSwap> make_device_swap(const std::string& fake, int devices) {
  auto swap = fake.empty() ? make_cuda_device_swap() : value_or_throw(FakeDeviceSwap::from_file(fake));
  value_or_throw(without_gil([&] { return swap->viable(); }));
  if (swap->devices() < devices)
    throw_python_error({ErrorCode::kIo, "the driver has " + std::to_string(swap->devices()) + " devices, and " +
                                            std::to_string(devices) + " are to be used"});
  return swap;
}

template <typename Server>
void serve(Server& server) {
  const auto served = server.run();
  if (served) return;
  if (served.error().code != ErrorCode::kIo) throw std::runtime_error(served.error().message);
  const py::gil_scoped_acquire gil;
  throw_python_error(served.error());
}

}  // namespace
}  // namespace prism

PYBIND11_MODULE(_c10d, module) {
  using namespace prism;
  using NoGil = py::call_guard<py::gil_scoped_release>;
  py::module_::import("torch.distributed");
  py::module_::import("prismllm._replay");  // defines Emulation
  PrismBackend::without_gil = [](c10::function_ref<void()> drop) {
    if (!Py_IsInitialized() || !PyGILState_Check()) return drop();
    const py::gil_scoped_release no_gil;
    drop();
  };

  py::class_<PrismBackend, c10d::Backend, c10::intrusive_ptr<PrismBackend>>(
      module, "PrismBackend", "The process group backend that torch.distributed sees under prism.")
      .def(py::init(
               [](std::string backend, std::string key, int rank, std::vector<std::int32_t> members, BackendPtr inner) {
                 auto group = make_group(std::move(backend), std::move(key), rank, std::move(members));
                 auto route = make_real_route(group, std::move(inner));
                 return c10::make_intrusive<PrismBackend>(std::move(group), std::move(route));
               }),
           py::arg("backend"), py::arg("key"), py::arg("rank"), py::arg("members"), py::arg("inner"))
      .def(py::init([](std::string backend, std::string key, int rank, std::vector<std::int32_t> members,
                       std::chrono::milliseconds timeout, bool coalescing) {
             auto group = make_group(std::move(backend), std::move(key), rank, std::move(members));
             auto route = make_capture_route(group, timeout, coalescing);
             return c10::make_intrusive<PrismBackend>(std::move(group), std::move(route));
           }),
           py::arg("backend"), py::arg("key"), py::arg("rank"), py::arg("members"), py::arg("timeout"),
           py::arg("coalescing"), NoGil())
      .def("perform_nocolor_split",
           [](PrismBackend& self, const py::object& device) {
             if (auto inner = self.inner()) py::cast(inner).attr("perform_nocolor_split")(device);
           })
      .def_property_readonly("inner", &PrismBackend::inner)
      .def("__getattr__", [](PrismBackend& self, const std::string& name) -> py::object {
        if (auto inner = self.inner(); inner && name.rfind("__", 0) != 0) return py::cast(inner).attr(name.c_str());
        throw py::attribute_error("PrismBackend has no attribute '" + name + "'");
      });

  module.def("is_emulated", [] { return session_client() && session_client()->is_emulated(); });
  module.def("watches_waits", [] { return Recorder::active() || session_client(); });
  module.def("wait_future", &wait_future, py::arg("future"), py::arg("blocking"));
  module.def("connect", &session_connect, py::arg("address"), py::arg("rank"), py::arg("world_size"), NoGil());
  module.def("finish", &session_finish, py::arg("error_text"), NoGil());
  module.def("abandon", [] {
    Recorder::abandon();
    session_abandon();
    forget_cpu_allocations();
  });
  module.def("answer_with", &answer_with, py::arg("communication"), py::arg("store_key"), py::arg("absent_key"),
             py::arg("quick") = false, "This rank runs alone; see csrc/backend/c10d/solo.hpp.");
  py::class_<PrismStore, c10d::Store, c10::intrusive_ptr<PrismStore>>(module, "PrismStore",
                                                                      "The coordinator's store, under capture.")
      .def(py::init([] { return c10::make_intrusive<PrismStore>(); }));

  py::class_<DeviceSwap, std::shared_ptr<DeviceSwap>>(module, "DeviceSwap", "See csrc/backend/device.")
      .def("devices", &DeviceSwap::devices, NoGil())
      .def(
          "memory",
          [](DeviceSwap& self, int device) -> std::optional<std::pair<std::uint64_t, std::uint64_t>> {
            const auto memory = self.memory(device);
            return memory ? std::optional(std::pair(memory->total, memory->free)) : std::nullopt;
          },
          py::arg("device"), NoGil(), "(total, free) bytes, or None.")
      .def(
          "swap_out",
          [](DeviceSwap& self, int pid) { value_or_throw(without_gil([&] { return self.swap_out(pid); })); },
          py::arg("pid"))
      .def(
          "swap_in", [](DeviceSwap& self, int pid) { value_or_throw(without_gil([&] { return self.swap_in(pid); })); },
          py::arg("pid"));
  module.def("device_swap", &make_device_swap, py::arg("fake"), py::arg("devices"));
  module.def("note_device_use", &session_note_device_use,
             "This process has state on an accelerator from now on, which the coordinator may swap out.");

  py::class_<Coordinator>(module, "Coordinator", "Serves one capture; see csrc/backend/coordinator.")
      .def(py::init(&make_coordinator), py::arg("address"), py::arg("world_size"), py::arg("slots") = 1,
           py::arg("memory_budget_bytes") = 0, py::arg("spill_directory") = "", py::arg("must_spill") = false,
           py::arg("schedule") = "need", py::arg("data_directory") = "", py::arg("data_for_ranks") = py::none(),
           py::arg("hosts") = std::vector<HostTuple>(), py::arg("link_fd") = -1, py::arg("host_timeout_s") = 10.0,
           py::arg("device_of_rank") = std::vector<int>(), py::arg("device_swap") = nullptr,
           py::arg("swap_always") = false, py::arg("more_ranks_fd") = -1, py::arg("data_of_whole_numbers") = false,
           py::arg("emulation") = nullptr, py::arg("emulation_data") = "", py::arg("check_values") = false,
           py::arg("data_limit_bytes") = 0)
      .def("run", &serve<Coordinator>, NoGil(),
           "Returns when every rank has finished; raises RuntimeError otherwise, OSError where the system refuses.")
      .def("abort",
           [](Coordinator& self, const std::string& why) {
             self.abort({ErrorCode::kAborted, why});
           })
      .def("statistics_json", &Coordinator::statistics_json);
  py::class_<Relay>(module, "Relay", "Stands in for the coordinator on another host; see csrc/backend/relay.")
      .def(py::init(&make_relay), py::arg("address"), py::arg("link_fd"), py::arg("host"), py::arg("world_size"),
           py::arg("first_rank"), py::arg("ranks"), py::arg("proof"), py::arg("coordinators_proof"),
           py::arg("memory_budget_bytes") = 0, py::arg("spill_directory") = "", py::arg("must_spill") = false,
           py::arg("host_timeout_s") = 10.0)
      .def("run", &serve<Relay>, NoGil(), "As Coordinator.run().")
      .def_property_readonly("was_told", &Relay::was_told, "Whether its error is one that the coordinator has told.");

  module.def(
      "fill_heaps",
      [] {
        // CPython since 3.10 (Objects/obmalloc.c): POOL_SIZE, POOL_OVERHEAD, SMALL_REQUEST_THRESHOLD.
        return fill_c_heap() + fill_pools(PyObject_Malloc, 16 << 10, 48, 512);
      },
      "Last before a fork: takes the gaps of this process's heaps, so that what its children allocate lies densely.");
  module.def("use_huge_pages", &use_huge_pages, NoGil(), "Makes forks of this process cheap; see csrc/backend/client.");
  module.def("reduce_tensors", &reduce_tensors, py::arg("inputs"), py::arg("reduce_op"));
  module.def("install_cpu_allocator", &install_cpu_allocator);
  module.def("start_recorder", &start_recorder, py::arg("rank"), py::arg("world_size"), py::arg("path"),
             py::arg("timed"), py::arg("progress_model"), py::arg("metadata"), py::arg("clock") = "slot",
             py::arg("memory_limit") = py::none(),
             "clock: what counts is the time with a slot; own: and what the rank sleeps by itself; wall: all.");
  module.def("start_communicators", &start_communicators, py::arg("rank"), py::arg("ranks_per_node"),
             py::arg("each") = py::none(), py::arg("changed") = py::none(),
             "Counts what communicators hold, or `each` of them; see memory_limit.hpp.");
  module.def("memory_in_use", &memory_in_use, "Bytes of this rank; None where nothing is counted.");
  module.def(
      "set_memory_limit",
      [](std::optional<std::int64_t> bytes) {
        if (auto* recorder = Recorder::active()) recorder->set_memory_limit(bytes.value_or(kNoMemoryLimit));
      },
      py::arg("bytes"));
  module.def("finish_recorder", [] { value_or_throw(without_gil([] { return Recorder::finish(); })); });
  module.def("recording", [] { return Recorder::active() != nullptr; });
  module.def(
      "mark_iteration",
      [] {
        if (auto* recorder = recorder_of_program()) recorder->mark_iteration();
      },
      NoGil());
  module.def(
      "name_next_span",
      [](std::string name) {
        if (auto* recorder = recorder_of_program()) recorder->name_next_span(std::move(name));
      },
      NoGil());
}
