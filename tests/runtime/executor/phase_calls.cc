// Calls of schedules across hosts: the data of each, streams, groups and captures.
#include "executor.h"
#include "phase_job.h"

#include <algorithm>
#include <cstring>
#include <memory>

namespace {

constexpr int kRoot = 1; // Of tables.

struct Shape {
    int operation;
    int type;
    int reduction;
    size_t count;
    bool in_place;

    bool reduces() const {
        return operation == TUCCL_REDUCE_SCATTER || operation == TUCCL_ALL_REDUCE;
    }
    size_t send_count(int ranks) const {
        return count * (operation == TUCCL_REDUCE_SCATTER || operation == TUCCL_ALLTOALL
                            ? static_cast<size_t>(ranks)
                            : 1);
    }
    size_t receive_count(int ranks) const {
        return count * (operation == TUCCL_ALL_GATHER || operation == TUCCL_ALLTOALL
                            ? static_cast<size_t>(ranks)
                            : 1);
    }
};

// Exact in every type and order of reduction, averages too.
template <typename T> T value_of(const Shape &shape, int rank, size_t index, int ranks) {
    const auto number =
        static_cast<unsigned>((index * 7 + static_cast<size_t>(rank) * 5 + index / 97) % 11 + 1);
    if (shape.reduction == TUCCL_PROD) // Of many ranks some have factors above 1.
        return static_cast<T>(rank % (ranks / 8 + 1) == 0 ? number % 3 + 1 : 1);
    return static_cast<T>(number *
                          (shape.reduction == TUCCL_AVG ? static_cast<unsigned>(ranks) : 1));
}

template <typename T> T combined(const Shape &shape, size_t index, int ranks) {
    T value = value_of<T>(shape, 0, index, ranks);
    for (int rank = 1; rank < ranks; rank++) {
        const T other = value_of<T>(shape, rank, index, ranks);
        switch (shape.reduction) {
        case TUCCL_PROD:
            value = static_cast<T>(value * other);
            break;
        case TUCCL_MAX:
            value = std::max(value, other);
            break;
        case TUCCL_MIN:
            value = std::min(value, other);
            break;
        default:
            value = static_cast<T>(value + other);
        }
    }
    return shape.reduction == TUCCL_AVG ? static_cast<T>(value / static_cast<T>(ranks)) : value;
}

// One call with its buffers between guards, and what it must leave in them.
class AnyCall {
  public:
    virtual ~AnyCall() = default;
    virtual int start(ncclComm_t comm, stand_in::Stream *stream) = 0;
    virtual bool is_right() const = 0;
    // Whether nothing but the result was written.
    virtual bool is_harmless() const = 0;
    virtual void spoil() = 0;
};

template <typename T> class Call : public AnyCall {
  public:
    Call(const Seat &seat, const Shape &shape)
        : seat_(seat), shape_(shape), send_(shape.send_count(seat.ranks) + 2 * kGuard, filler()),
          receive_(shape.receive_count(seat.ranks) + 2 * kGuard, filler()) {
        spoil();
    }

    int start(ncclComm_t comm, stand_in::Stream *stream) override {
        const void *from = sent();
        void *to = received();
        switch (shape_.operation) {
        case TUCCL_ALL_GATHER:
            return ncclAllGather(from, to, shape_.count, shape_.type, comm, stream);
        case TUCCL_REDUCE_SCATTER:
            return ncclReduceScatter(from, to, shape_.count, shape_.type, shape_.reduction, comm,
                                     stream);
        case TUCCL_ALL_REDUCE:
            return ncclAllReduce(from, to, shape_.count, shape_.type, shape_.reduction, comm,
                                 stream);
        case TUCCL_BROADCAST:
            return ncclBroadcast(from, to, shape_.count, shape_.type, kRoot, comm, stream);
        case TUCCL_REDUCE:
            return ncclReduce(from, to, shape_.count, shape_.type, shape_.reduction, kRoot, comm,
                              stream);
        default:
            return ncclAlltoAll(from, to, shape_.count, shape_.type, comm, stream);
        }
    }

    // Writes the input again, and fills the result.
    void spoil() override {
        std::fill(send_.begin(), send_.end(), filler());
        std::fill(receive_.begin(), receive_.end(), filler());
        T *first = sent();
        for (size_t i = 0; i < shape_.send_count(seat_.ranks); i++)
            first[i] = value_of<T>(shape_, seat_.rank, i, seat_.ranks);
    }

    bool is_right() const override {
        std::vector<T> sent(send_.size(), filler());
        std::vector<T> received(receive_.size(), filler());
        const Call expected(seat_, shape_, &sent, &received);
        return sent == send_ && received == receive_;
    }

    bool is_harmless() const override {
        const auto is_around = [](const std::vector<T> &data) {
            return std::all_of(data.begin(), data.begin() + kGuard,
                               [](T each) { return each == filler(); }) &&
                   std::all_of(data.end() - kGuard, data.end(),
                               [](T each) { return each == filler(); });
        };
        const T *sent = send_.data() + kGuard;
        bool is_same = true;
        for (size_t i = 0; !shape_.in_place && i < shape_.send_count(seat_.ranks); i++)
            is_same &= sent[i] == value_of<T>(shape_, seat_.rank, i, seat_.ranks);
        return is_around(send_) && is_around(receive_) && is_same;
    }

  private:
    static constexpr std::ptrdiff_t kGuard = 5;
    static T filler() {
        return static_cast<T>(77);
    }

    // Writes what the call leaves.
    Call(const Seat &seat, const Shape &shape, std::vector<T> *send, std::vector<T> *receive)
        : seat_(seat), shape_(shape), send_(*send), receive_(*receive) {
        spoil();
        T *to = received();
        const auto ranks = static_cast<size_t>(seat.ranks);
        const auto own = static_cast<size_t>(seat.rank);
        for (size_t i = 0; i < shape.receive_count(seat.ranks); i++) {
            const size_t block = i / shape.count;
            const size_t within = i % shape.count;
            switch (shape.operation) {
            case TUCCL_ALL_GATHER:
                to[i] = value_of<T>(shape, static_cast<int>(block), within, seat.ranks);
                break;
            case TUCCL_REDUCE_SCATTER:
                to[i] = combined<T>(shape, own * shape.count + i, seat.ranks);
                break;
            case TUCCL_ALL_REDUCE:
                to[i] = combined<T>(shape, i, seat.ranks);
                break;
            case TUCCL_BROADCAST:
                to[i] = value_of<T>(shape, kRoot, i, seat.ranks);
                break;
            case TUCCL_REDUCE:
                if (seat.rank == kRoot)
                    to[i] = combined<T>(shape, i, seat.ranks);
                break;
            default:
                to[i] = value_of<T>(shape, static_cast<int>(block), own * shape.count + within,
                                    seat.ranks);
            }
        }
        CHECK(ranks > 1);
        *send = send_;
        *receive = receive_;
    }

    // In place the smaller buffer is this rank's block of the larger one.
    T *sent() {
        if (shape_.in_place && shape_.operation == TUCCL_ALL_GATHER)
            return receive_.data() + kGuard + static_cast<size_t>(seat_.rank) * shape_.count;
        return send_.data() + kGuard;
    }
    T *received() {
        if (!shape_.in_place || shape_.operation == TUCCL_ALL_GATHER)
            return receive_.data() + kGuard;
        const size_t block =
            shape_.operation == TUCCL_REDUCE_SCATTER ? static_cast<size_t>(seat_.rank) : 0;
        return send_.data() + kGuard + block * shape_.count;
    }

    const Seat &seat_;
    const Shape shape_;
    std::vector<T> send_;
    std::vector<T> receive_;
};

std::unique_ptr<AnyCall> make(const Seat &seat, const Shape &shape) {
    switch (shape.type) {
    case TUCCL_INT32:
        return std::make_unique<Call<int32_t>>(seat, shape);
    case TUCCL_FLOAT32:
        return std::make_unique<Call<float>>(seat, shape);
    default:
        return std::make_unique<Call<uint8_t>>(seat, shape);
    }
}

// Of the tables that PLANS names, each with one plan for every operation that has it.
std::vector<std::string> plans() {
    std::vector<std::string> names;
    std::string text = std::getenv("PLANS");
    for (size_t at = 0; !text.empty(); text.erase(0, at)) {
        at = std::min(text.find(' '), text.size());
        names.push_back(text.substr(0, at));
        at += at < text.size() ? 1 : 0;
    }
    return names;
}

std::vector<Shape> all_shapes() {
    std::vector<Shape> shapes;
    for (const int operation :
         {TUCCL_ALL_REDUCE, TUCCL_REDUCE_SCATTER, TUCCL_ALL_GATHER, TUCCL_ALLTOALL})
        for (const int type : {TUCCL_INT32, TUCCL_FLOAT32, TUCCL_UINT8})
            for (const size_t count : {1, 3, 64, 257, 1003})
                for (const bool in_place : {false, true}) {
                    const bool reduces =
                        operation == TUCCL_ALL_REDUCE || operation == TUCCL_REDUCE_SCATTER;
                    // All reductions at one size, one at the others.
                    for (int reduction = 0; reduction <= (reduces && count == 257 ? 4 : 0);
                         reduction++)
                        if (operation != TUCCL_ALLTOALL || !in_place)
                            shapes.push_back({operation, type, reduction, count, in_place});
                }
    return shapes;
}

// All calls that a communicator makes, whose results are checked; the executor's calls of each
// operation.
std::array<int, 6> served_of(Seat &seat, ncclComm_t comm, const std::string &plan,
                             const std::vector<Shape> &shapes) {
    std::array<int, 6> served = {};
    for (const Shape &shape : shapes) {
        const auto call = make(seat, shape);
        const uint64_t before = tuccl_executor_calls();
        CHECK(call->start(comm, &seat.stream) == 0);
        served.at(shape.operation) += static_cast<int>(tuccl_executor_calls() - before);
        seat.stream.wait();
        if (!call->is_right()) {
            std::fprintf(stderr, "%s: rank %d: operation %d type %d reduction %d count %zu%s\n",
                         plan.c_str(), seat.rank, shape.operation, shape.type, shape.reduction,
                         shape.count, shape.in_place ? " in place" : "");
            std::_Exit(1);
        }
    }
    return served;
}

// Broadcasts and reductions to one rank, of the root that a table's schedules have.
SCENARIO(rooted) {
    std::vector<Shape> shapes;
    for (const int operation : {TUCCL_BROADCAST, TUCCL_REDUCE})
        for (const size_t count : {1, 3, 257, 1003})
            for (const bool in_place : {false, true})
                shapes.push_back({operation, count == 3 ? TUCCL_FLOAT32 : TUCCL_INT32, TUCCL_SUM,
                                  count, in_place});
    for (const std::string &plan : plans()) {
        set_table(plan);
        const ncclComm_t comm = seat.started();
        const auto served = served_of(seat, comm, plan, shapes);
        if (seat.rank == 0)
            std::printf("%s %d %d\n", plan.c_str(), served[TUCCL_BROADCAST], served[TUCCL_REDUCE]);
        CHECK(ncclCommDestroy(comm) == 0);
    }
}

// Messages of a stage that do not fit the staging memory at once.
SCENARIO(many_launches) {
    set_table(plans().front());
    const ncclComm_t comm = seat.started();
    for (const size_t count : {1, 9000}) {
        const auto call = make(seat, {TUCCL_ALL_REDUCE, TUCCL_INT32, TUCCL_SUM, count, false});
        CHECK(runs(seat, [&] { CHECK(call->start(comm, &seat.stream) == 0); }));
        seat.stream.wait();
        CHECK(call->is_right());
        const int launches = Notes().count("stage rank");
        CHECK(count == 1 ? launches <= 2 : launches >= 5);
    }
    CHECK(ncclCommDestroy(comm) == 0);
}

// Programs that a loader accepts, and that compute nothing in particular.
SCENARIO(wrong_programs) {
    for (const std::string &plan : plans()) {
        set_table(plan);
        const ncclComm_t comm = seat.started();
        for (const int operation : {TUCCL_ALL_REDUCE, TUCCL_REDUCE_SCATTER, TUCCL_ALL_GATHER})
            for (const size_t count : {1, 3, 257, 1003})
                for (const bool in_place : {false, true}) {
                    const auto call =
                        make(seat, {operation, TUCCL_INT32, TUCCL_SUM, count, in_place});
                    CHECK(runs(seat, [&] { CHECK(call->start(comm, &seat.stream) == 0); }));
                    seat.stream.wait();
                    CHECK(call->is_harmless());
                }
        CHECK(ncclCommDestroy(comm) == 0);
    }
}

// Which of them are served is printed: the executor's calls of each operation.
SCENARIO(data) {
    for (const std::string &plan : plans()) {
        set_table(plan);
        const ncclComm_t comm = seat.started();
        const auto served = served_of(seat, comm, plan, all_shapes());
        for (const int64_t other :
             seat.tell("data", served[TUCCL_ALL_REDUCE] * 1000 + served[TUCCL_ALL_GATHER]))
            CHECK(other == served[TUCCL_ALL_REDUCE] * 1000 + served[TUCCL_ALL_GATHER]);
        if (seat.rank == 0)
            std::printf("%s %d %d %d %d\n", plan.c_str(), served[TUCCL_ALL_REDUCE],
                        served[TUCCL_REDUCE_SCATTER], served[TUCCL_ALL_GATHER],
                        served[TUCCL_ALLTOALL]);
        CHECK(Notes().count("nccl connects") == 0); // All of it was done at the start.
        CHECK(ncclCommDestroy(comm) == 0);
    }
    CHECK(stand_in_live_communicators() == 0);
}

Shape some_shape(size_t i) {
    static constexpr size_t kCounts[] = {257, 1, 1003, 64, 600};
    static constexpr int kOperations[] = {TUCCL_ALL_REDUCE, TUCCL_ALL_GATHER, TUCCL_REDUCE_SCATTER,
                                          TUCCL_ALLTOALL};
    return {kOperations[i % 4], i % 3 == 0 ? TUCCL_FLOAT32 : TUCCL_INT32, TUCCL_SUM, kCounts[i % 5],
            false};
}

// Calls on several streams run in the order of the calls, whose memory between phases they share.
SCENARIO(streams) {
    set_table(plans().front());
    const ncclComm_t comm = seat.started();
    std::array<stand_in::Stream, 3> others;
    std::vector<std::unique_ptr<AnyCall>> calls;
    CHECK(runs(seat, [&] {
        for (size_t i = 0; i < 24; i++) {
            calls.push_back(make(seat, some_shape(i)));
            CHECK(calls.back()->start(comm, &others[i * 2 % 3]) == 0);
        }
    }));
    for (stand_in::Stream &stream : others)
        stream.wait();
    for (const auto &call : calls)
        CHECK(call->is_right());
    CHECK(ncclCommDestroy(comm) == 0);
}

// A stream may be destroyed while a call on it runs.
SCENARIO(streams_end) {
    set_table(plans().front());
    const ncclComm_t comm = seat.started();
    for (size_t i = 0; i < 6; i++) {
        auto gone = std::make_unique<stand_in::Stream>();
        const auto first = make(seat, {TUCCL_ALL_REDUCE, TUCCL_INT32, TUCCL_SUM, 1003, false});
        const auto second = make(seat, {TUCCL_ALL_REDUCE, TUCCL_INT32, TUCCL_MAX, 1003, false});
        CHECK(first->start(comm, gone.get()) == 0);
        gone->forget();
        CHECK(second->start(comm, &seat.stream) == 0);
        seat.stream.wait();
        CHECK(first->is_right() && second->is_right());
    }
    CHECK(ncclCommDestroy(comm) == 0);
}

// A group of several calls, of sends and of calls of another communicator, which NCCL runs.
SCENARIO(groups) {
    set_table(plans().front());
    const ncclComm_t comm = seat.started();
    const ncclComm_t second = seat.started();
    set_table("nothing");
    const ncclComm_t nccls = seat.started();
    stand_in::Stream other;
    const auto one = make(seat, {TUCCL_ALL_REDUCE, TUCCL_INT32, TUCCL_SUM, 1003, false});
    const auto two = make(seat, {TUCCL_ALL_REDUCE, TUCCL_FLOAT32, TUCCL_AVG, 64, true});
    const auto three = make(seat, {TUCCL_ALL_REDUCE, TUCCL_INT32, TUCCL_SUM, 257, false});
    const auto four = make(seat, {TUCCL_REDUCE_SCATTER, TUCCL_INT32, TUCCL_SUM, 100, false});
    int unused = 0;
    const uint64_t before = tuccl_executor_calls();
    CHECK(ncclGroupStart() == 0 && ncclGroupStart() == 0);
    CHECK(ncclSend(&unused, 1, TUCCL_INT32, 0, comm, &seat.stream) == 0);
    CHECK(one->start(comm, &seat.stream) == 0);
    CHECK(three->start(nccls, &other) == 0);
    CHECK(two->start(comm, &other) == 0);
    CHECK(four->start(second, &seat.stream) == 0);
    CHECK(ncclRecv(&unused, 1, TUCCL_INT32, 0, second, &seat.stream) == 0);
    CHECK(ncclGroupEnd() == 0);
    CHECK(tuccl_executor_calls() == before);
    CHECK(ncclGroupEnd() == 0);
    CHECK(tuccl_executor_calls() == before + 3);
    seat.stream.wait();
    other.wait();
    CHECK(one->is_right() && two->is_right() && three->is_right() && four->is_right());

    // Two operations of one communicator: all of them are NCCL's.
    CHECK(ncclGroupStart() == 0);
    one->spoil();
    four->spoil();
    CHECK(one->start(comm, &seat.stream) == 0);
    CHECK(four->start(comm, &seat.stream) == 0);
    CHECK(ncclGroupEnd() == 0);
    CHECK(tuccl_executor_calls() == before + 3);
    seat.stream.wait();
    CHECK(one->is_right() && four->is_right());
    for (const ncclComm_t ended : {comm, second, nccls})
        CHECK(ncclCommDestroy(ended) == 0);
}

// Ranks may call two communicators in different orders within a group.
SCENARIO(group_in_any_order) {
    set_table(plans().front());
    const std::array<ncclComm_t, 2> comms = {seat.started(), seat.started()};
    for (int turn = 0; turn < 5; turn++) {
        const auto first = make(seat, {TUCCL_ALL_REDUCE, TUCCL_INT32, TUCCL_SUM, 1003, false});
        const auto second = make(seat, {TUCCL_ALL_REDUCE, TUCCL_INT32, TUCCL_MAX, 1003, false});
        const size_t odd = static_cast<size_t>(seat.rank + turn) % 2;
        CHECK(ncclGroupStart() == 0);
        CHECK((odd != 0 ? first : second)->start(comms[1 - odd], &seat.stream) == 0);
        CHECK((odd != 0 ? second : first)->start(comms[odd], &seat.stream) == 0);
        CHECK(ncclGroupEnd() == 0);
        seat.stream.wait();
        CHECK(first->is_right() && second->is_right());
    }
    for (const ncclComm_t comm : comms)
        CHECK(ncclCommDestroy(comm) == 0);
}

// Replays beside eager calls; the job orders them by one stream.
SCENARIO(captures) {
    set_table(plans().front());
    const ncclComm_t comm = seat.started();
    std::vector<std::unique_ptr<AnyCall>> captured;
    seat.stream.begin_capture();
    CHECK(runs(seat, [&] {
        for (size_t i = 0; i < 4; i++) {
            captured.push_back(make(seat, some_shape(i * 5)));
            CHECK(captured.back()->start(comm, &seat.stream) == 0);
        }
    }));
    const auto graph = seat.stream.end_capture();
    for (size_t launch = 0; launch < 4; launch++) {
        const auto eager = make(seat, some_shape(launch * 2));
        for (const auto &call : captured)
            call->spoil();
        seat.stream.launch(*graph);
        CHECK(eager->start(comm, &seat.stream) == 0);
        seat.stream.wait();
        CHECK(eager->is_right());
        for (const auto &call : captured)
            CHECK(call->is_right());
    }
    CHECK(ncclCommDestroy(comm) == 0);
}

// Eager calls on another stream while a capture is open, and a second capture beside it.
SCENARIO(calls_beside_an_open_capture) {
    set_table(plans().front());
    const ncclComm_t comm = seat.started();
    stand_in::Stream eager_stream;
    stand_in::Stream second_stream;
    const Shape sliced = {TUCCL_ALL_REDUCE, TUCCL_INT32, TUCCL_SUM, 1003, false};
    const auto first = make(seat, sliced);
    const auto eager = make(seat, sliced);
    const auto second = make(seat, sliced);
    const auto third = make(seat, sliced);
    seat.stream.begin_capture();
    CHECK(first->start(comm, &seat.stream) == 0);
    CHECK(eager->start(comm, &eager_stream) == 0);
    eager_stream.wait();
    CHECK(eager->is_right());
    second_stream.begin_capture();
    CHECK(second->start(comm, &second_stream) == 0);
    CHECK(third->start(comm, &seat.stream) == 0);
    const auto second_graph = second_stream.end_capture();
    const auto first_graph = seat.stream.end_capture();
    seat.stream.launch(*first_graph);
    seat.stream.launch(*second_graph);
    seat.stream.wait();
    CHECK(first->is_right() && second->is_right() && third->is_right());
    CHECK(ncclCommDestroy(comm) == 0);
}

// Several calls that are captured on streams which the job has forked.
SCENARIO(capture_of_two_streams) {
    set_table(plans().front());
    const ncclComm_t comm = seat.started();
    stand_in::Stream forked;
    const auto first = make(seat, {TUCCL_ALL_REDUCE, TUCCL_INT32, TUCCL_SUM, 1003, false});
    const auto second = make(seat, {TUCCL_REDUCE_SCATTER, TUCCL_INT32, TUCCL_SUM, 600, false});
    seat.stream.begin_capture();
    CHECK(stand_in::order(&seat.stream, &forked) == 0);
    CHECK(first->start(comm, &seat.stream) == 0);
    CHECK(second->start(comm, &forked) == 0);
    CHECK(stand_in::order(&forked, &seat.stream) == 0);
    const auto graph = seat.stream.end_capture();
    for (int launch = 0; launch < 2; launch++) {
        first->spoil();
        second->spoil();
        seat.stream.launch(*graph);
        seat.stream.wait();
        CHECK(first->is_right() && second->is_right());
    }
    CHECK(ncclCommDestroy(comm) == 0);
}

// Whether the executor runs an all_reduce of a communicator, which all siblings make at once.
bool is_served_among(Seat &seat, ncclComm_t comm, const std::vector<int> &members) {
    int expected = 0;
    for (const int member : members)
        expected += 1 + member;
    std::vector<int> data(64, 1 + seat.rank);
    const bool served = runs(seat, [&] {
        CHECK(ncclAllReduce(data.data(), data.data(), data.size(), TUCCL_INT32, TUCCL_SUM, comm,
                            &seat.stream) == 0);
        seat.stream.wait();
    });
    CHECK(data == std::vector<int>(data.size(), expected));
    return served;
}

// The communicators of a job: of all ranks, of each host's, and of each rail.
SCENARIO(shapes) {
    const int node = seat.rank / seat.local_ranks;
    const int place = seat.rank % seat.local_ranks;
    std::vector<int> all, beside, along;
    for (int rank = 0; rank < seat.ranks; rank++) {
        all.push_back(rank);
        if (rank / seat.local_ranks == node)
            beside.push_back(rank);
        if (rank % seat.local_ranks == place)
            along.push_back(rank);
    }
    for (const char *table : {"shapes", "nodes"}) {
        set_table(table);
        const ncclComm_t comm = seat.started();
        ncclComm_t of_node = nullptr;
        ncclComm_t of_rail = nullptr;
        CHECK(ncclCommSplit(comm, node, seat.rank, &of_node, nullptr) == 0);
        CHECK(ncclCommSplit(comm, place, seat.rank, &of_rail, nullptr) == 0);
        for (int turn = 0; turn < 2; turn++) {
            const bool whole = is_served_among(seat, comm, all);
            const bool nodes = is_served_among(seat, of_node, beside);
            const bool rails = is_served_among(seat, of_rail, along);
            if (seat.rank == 0 && turn == 1)
                std::printf("%s %d %d %d\n", table, whole, nodes, rails);
        }
        CHECK(ncclCommDestroy(of_rail) == 0 && ncclCommDestroy(of_node) == 0);
        CHECK(ncclCommDestroy(comm) == 0);
    }
}

// A table of settings for all ranks and for each rail: a node's ranks may be as many as a rail's,
// and are none.
SCENARIO(settings_by_shape) {
    set_table("settings");
    const ncclComm_t comm = seat.started();
    const auto least = [](ncclComm_t of) { return stand_in_config(of)->minCTAs; };
    ncclComm_t of_node = nullptr;
    ncclComm_t of_rail = nullptr;
    ncclComm_t third = nullptr;
    CHECK(ncclCommSplit(comm, seat.rank / seat.local_ranks, seat.rank, &of_node, nullptr) == 0);
    CHECK(ncclCommSplit(comm, seat.rank % seat.local_ranks, seat.rank, &of_rail, nullptr) == 0);
    CHECK(ncclCommSplit(comm, seat.rank < 3 ? 0 : -1, seat.rank, &third, nullptr) == 0);
    CHECK(least(comm) == 32 && least(of_rail) == 32 && least(of_node) == INT_MIN);
    CHECK(third == nullptr || least(third) == INT_MIN);
    for (ncclComm_t made : {third, of_rail, of_node, comm})
        if (made != nullptr)
            CHECK(ncclCommDestroy(made) == 0);
    CHECK(stand_in_live_communicators() == 0);
}

// A table of two lanes, for which two further cores are needed: ranks have four cores each, or four
// together.
SCENARIO(lanes_need_cores) {
    set_table("lanes0");
    setenv("STAND_IN_CORES", "4", 1);
    for (const bool apart : {true, false}) {
        setenv("STAND_IN_FIRST_CORE", std::to_string(apart ? 4 * seat.rank : 0).c_str(), 1);
        const ncclComm_t comm = seat.started();
        CHECK(is_served(seat, comm) == apart);
        CHECK(ncclCommDestroy(comm) == 0);
        seat.meet("destroyed");
    }
}

} // namespace
