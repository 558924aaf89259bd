//! Power cuts while a stream is received: under the name is what was there before, or all that was sent; and what is left can be
//! gone on with.

#include "support/power_cut_workload.hpp"
#include "volume/backup/streams.hpp"

namespace rawduck {

namespace {

std::string Block(char letter, uint64_t length) {
    return std::string(length, letter);
}

//! By name.
using Found = std::map<std::string, std::string>;

} // namespace

TEST(ReceiveCutsTest, EveryEventOfAFullAndAnIncrementalReceive) {
    const MemoryVolume from(512);
    std::string full, changes;
    {
        const VolumePin volume = PinVolume(from.name, MountOptions());
        const auto write = [&](const char *name, const std::string &bytes, uint64_t offset) {
            volume->Open(name, WriteMode(FileKind::DATABASE))->Write(bytes.data(), bytes.size(), offset);
        };
        write("x.duckdb", Block('m', 2500000), 0);
        write("x.duckdb.wal", Block('w', 1000), 0);
        volume->Snapshot("x.duckdb", "monday");
        full = Sent(from.name, "x.duckdb@monday");
        write("x.duckdb", Block('t', 70000), 300000);
        volume->Remove("x.duckdb.wal");
        write("x.duckdb.wal.checkpoint", Block('c', 3000), 0);
        volume->Snapshot("x.duckdb", "tuesday");
        changes = Sent(from.name, "x.duckdb@tuesday", {"monday", ""});
    }
    for (const SimulatedFua fua : {SimulatedFua::HONOURED, SimulatedFua::NONE}) {
        const Medium medium = Formatted(512, fua);
        std::vector<std::pair<uint64_t, Found>> states; // from an event on
        const auto acknowledge = [&](Volume &volume) {
            states.emplace_back(medium->Events(), Contents(volume));
        };
        {
            const std::shared_ptr<Volume> volume = Mount(medium);
            volume->Open("first", WriteMode())->Append("x", 1);
            acknowledge(*volume);
            for (const std::string &stream : {full, changes}) {
                Receive(VolumePin(volume), "copy.duckdb", stream, false, 1);
                acknowledge(*volume);
            }
        }
        ASSERT_EQ(states[2].second.size(), 1u + 2 + 2 + 2);
        for (uint64_t cut = states[0].first; cut <= medium->Events(); cut++) {
            const Medium left = Cut(medium, cut, cut);
            size_t last = 0;
            while (last + 1 < states.size() && states[last + 1].first <= cut) {
                last++;
            }
            const std::shared_ptr<Volume> volume = Mount(left);
            ASSERT_TRUE(volume->Info().poisoned.empty());
            const Found found = Contents(*volume);
            // All of it has its name in one record, which may be durable before it is acknowledged.
            ASSERT_TRUE(found == states[last].second ||
                        (last + 1 < states.size() && found == states[last + 1].second))
                << "cut after event " << cut;
            for (size_t next = last; next < 2; next++) {
                const std::string &stream = next == 0 ? full : changes;
                if (found == states[next + 1].second) {
                    EXPECT_EQ(FailureOf([&] { Receive(VolumePin(volume), "copy.duckdb", stream, false, 1); }),
                              ErrorCode::EXISTS);
                } else {
                    Receive(VolumePin(volume), "copy.duckdb", stream, false, 1);
                }
            }
            ASSERT_EQ(Contents(*volume), states[2].second) << "cut after event " << cut;
            GiveUpReceived(*volume, "copy.duckdb");
            ASSERT_EQ(volume->Files().size(), states[2].second.size() + 2) << "cut after event " << cut;
        }
    }
}

} // namespace rawduck
