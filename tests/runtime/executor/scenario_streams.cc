// Calls of one communicator on several streams, and captures of them.
#include "scenarios.h"
#include "session.h"

#include <atomic>
#include <memory>

namespace {

// Work that ends when it is told to, so that what is behind it shows.
struct Gate {
    std::atomic<bool> open{false};
    void hold(stand_in::Stream *stream) {
        stream->put([this] {
            while (!open.load())
                std::this_thread::yield();
        });
    }
};

// Two calls that have started, the first behind the gate: the second, on another stream, waits.
void second_waits(Rank &rank, Gate &gate, stand_in::Stream &other, const AllReduce &first,
                  const AllReduce &second) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(second.receive[0] == -1 && first.receive[0] == -1);
    gate.open.store(true);
    other.wait();
    CHECK(first.is_right() && second.is_right());
    rank.stream.wait();
}

// A call on a second stream comes behind the first's, whoever runs either.
void two_streams(size_t first_count, size_t second_count) {
    with_communicator(2, [=](Rank &rank) {
        stand_in::Stream other;
        Gate gate;
        AllReduce first(rank, first_count);
        AllReduce second(rank, second_count);
        gate.hold(&rank.stream);
        CHECK(first.start(rank.comm, &rank.stream) == 0);
        CHECK(second.start(rank.comm, &other) == 0);
        second_waits(rank, gate, other, first, second);
    });
}
constexpr size_t kServed = 64;
constexpr size_t kNotServed = 20000;

SCENARIO(both_served) {
    two_streams(kServed, kServed);
}
SCENARIO(executor_then_nccl) {
    two_streams(kServed, kNotServed);
}
SCENARIO(nccl_then_executor) {
    two_streams(kNotServed, kServed);
}

SCENARIO(one_stream_needs_no_order) {
    with_communicator(2, [](Rank &rank) {
        for (int i = 0; i < 5; i++) {
            AllReduce call(rank, i % 2 == 0 ? kServed : kNotServed);
            call.run(rank.comm, &rank.stream);
        }
    });
    CHECK(Notes().count("order") == 0);
}

SCENARIO(group_on_two_streams) {
    with_communicator(2, [](Rank &rank) {
        stand_in::Stream other;
        AllReduce first(rank);
        AllReduce second(rank);
        CHECK(ncclGroupStart() == 0);
        CHECK(first.start(rank.comm, &rank.stream) == 0);
        CHECK(second.start(rank.comm, &other) == 0);
        CHECK(ncclGroupEnd() == 0);
        other.wait();
        CHECK(first.is_right() && second.is_right());
        rank.stream.wait();
    });
    CHECK(Notes().count("order") == 2);
}

// A stream that its owner destroyed is nothing to wait for, and no error.
SCENARIO(destroyed_stream) {
    with_communicator(2, [](Rank &rank) {
        auto gone = std::make_unique<stand_in::Stream>();
        AllReduce first(rank);
        CHECK(first.start(rank.comm, gone.get()) == 0);
        gone.reset();
        AllReduce second(rank);
        CHECK(second.start(rank.comm, &rank.stream) == 0);
        rank.stream.wait();
        CHECK(first.is_right() && second.is_right());
    });
}

// Nor while a call on it runs: the next call comes behind it.
SCENARIO(destroyed_busy_stream) {
    with_communicator(2, [](Rank &rank) {
        for (const size_t count : {kServed, kNotServed}) {
            stand_in::Stream busy;
            Gate open_later;
            AllReduce first(rank, count);
            AllReduce second(rank);
            open_later.hold(&busy);
            CHECK(first.start(rank.comm, &busy) == 0);
            busy.forget();
            CHECK(second.start(rank.comm, &rank.stream) == 0);
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            CHECK(second.receive[0] == -1);
            open_later.open.store(true);
            rank.stream.wait();
            CHECK(first.is_right() && second.is_right());
        }
    });
}

// Captured calls run at every launch, ordered within their capture only.
SCENARIO(capture) {
    with_communicator(2, [](Rank &rank) {
        stand_in::Stream eager;
        stand_in::Stream joined;
        AllReduce before(rank);
        CHECK(before.start(rank.comm, &eager) == 0);
        AllReduce first(rank);
        AllReduce second(rank);
        rank.stream.begin_capture();
        CHECK(stand_in::order(&rank.stream, &joined) == 0); // The job forks its capture.
        // No order with what is not captured: the stand-in stops the process if one is asked for.
        CHECK(first.start(rank.comm, &rank.stream) == 0);
        CHECK(second.start(rank.comm, &joined) == 0);
        CHECK(joined.end_capture() == rank.stream.capture());
        const auto graph = rank.stream.end_capture();
        CHECK(first.receive[0] == -1 && graph->work.size() == 2);
        eager.wait(); // What a graph's launch comes behind is the job's business.
        CHECK(before.is_right());
        for (int launch = 0; launch < 3; launch++) {
            first.receive[0] = second.receive[0] = -1;
            rank.stream.launch(*graph);
            rank.stream.wait();
            CHECK(first.is_right() && second.is_right());
        }
    });
    CHECK(Notes().count("order") == 4); // The job's own, and the second call behind the first.
}

// After a capture, calls are ordered behind the last one that was not captured.
SCENARIO(eager_after_capture) {
    with_communicator(2, [](Rank &rank) {
        stand_in::Stream captured;
        stand_in::Stream last;
        Gate gate;
        AllReduce first(rank);
        AllReduce inside(rank);
        AllReduce after(rank);
        gate.hold(&rank.stream);
        CHECK(first.start(rank.comm, &rank.stream) == 0);
        captured.begin_capture();
        CHECK(inside.start(rank.comm, &captured) == 0);
        CHECK(captured.end_capture()->work.size() == 1);
        CHECK(after.start(rank.comm, &captured) == 0); // The same stream, no longer captured.
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        CHECK(after.receive[0] == -1);
        gate.open.store(true);
        captured.wait();
        CHECK(first.is_right() && after.is_right() && inside.receive[0] == -1);
        rank.stream.wait();
    });
}

// A capture begins on the stream of the last call and spreads to another.
SCENARIO(capture_on_the_last_stream) {
    with_communicator(2, [](Rank &rank) {
        stand_in::Stream joined;
        AllReduce before(rank);
        AllReduce first(rank);
        AllReduce second(rank);
        CHECK(before.start(rank.comm, &rank.stream) == 0);
        rank.stream.wait();
        rank.stream.begin_capture();
        CHECK(stand_in::order(&rank.stream, &joined) == 0);
        CHECK(first.start(rank.comm, &rank.stream) == 0);
        CHECK(second.start(rank.comm, &joined) == 0);
        CHECK(joined.end_capture() == rank.stream.capture());
        rank.stream.launch(*rank.stream.end_capture());
        rank.stream.wait();
        CHECK(before.is_right() && first.is_right() && second.is_right());
    });
    CHECK(Notes().count("order") == 4);
}

// Ranks of a communicator that does not block, whose groups NCCL ends so much later.
void with_late_groups(int ms, const std::function<void(Rank &)> &body) {
    const ncclUniqueId id = new_id();
    in_threads(2, [&](Rank &rank) {
        ncclConfig config = does_not_block();
        CHECK(ncclCommInitRankConfig(&rank.comm, 2, id, rank.rank, &config) ==
              tuccl::kNcclInProgress);
        CHECK(settled(rank.comm) == 0);
        stand_in_late(rank.comm, ms);
        meet_threads();
        body(rank);
        CHECK(ncclCommDestroy(rank.comm) == 0);
    });
}

// NCCL puts its call on the stream after the group has ended: the next call still comes behind it.
SCENARIO(late_group_then_executor) {
    with_late_groups(30, [](Rank &rank) {
        stand_in::Stream other;
        Gate gate;
        AllReduce first(rank, kNotServed);
        AllReduce second(rank, kServed);
        CHECK(ncclGroupStart() == 0);
        CHECK(first.start(rank.comm, &rank.stream) == 0);
        CHECK(ncclGroupEnd() == tuccl::kNcclInProgress);
        gate.hold(&rank.stream); // In front of NCCL's call.
        CHECK(settled(rank.comm) == 0);
        CHECK(second.start(rank.comm, &other) == 0);
        second_waits(rank, gate, other, first, second);
    });
}

// NCCL allows one thread at a time to ask about such a communicator.
SCENARIO(late_groups_and_nobody_else_asks) {
    with_late_groups(1, [](Rank &rank) {
        for (int i = 0; i < 300; i++) { // For several looks of a thread that looks every 100 ms.
            AllReduce call(rank, kNotServed);
            CHECK(ncclGroupStart() == 0);
            CHECK(call.start(rank.comm, &rank.stream) == 0);
            CHECK(ncclGroupEnd() == tuccl::kNcclInProgress);
            CHECK(settled(rank.comm) == 0);
            rank.stream.wait();
        }
    });
}

} // namespace
