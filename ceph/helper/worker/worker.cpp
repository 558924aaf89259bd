#include "ceph/helper/worker/worker.hpp"

#include "ceph/channel/packets.hpp"
#include "ceph/helper/worker/handed_over_object.hpp"
#include "ceph/helper/worker/sandbox.hpp"

namespace rawduck_ceph {

namespace {

Reply RunJob(QueryRunner &runner, const JobPacket &job, std::vector<OwnedFd> files) {
    try {
        HandedOverObject object(job, std::move(files));
        Reply reply = runner.Run(object.Request(), job.request_bytes, object);
        reply.read_bytes = job.data_bytes;
        return reply;
    } catch (const std::exception &error) {
        Reply reply;
        reply.status = ReplyStatus::FAILED;
        reply.text = error.what();
        return reply;
    }
}

//! The encoded reply as a file in memory; a short one instead where there is no memory for it.
OwnedFd Encode(Reply &reply, uint64_t &bytes) {
    for (;;) {
        try {
            const std::string encoded = EncodeReply(reply);
            reply.payload.clear();
            bytes = encoded.size();
            return MakeMemoryFile("rawduck-reply", encoded);
        } catch (const std::bad_alloc &) {
            if (reply.status == ReplyStatus::FAILED) {
                throw;
            }
            reply = Reply();
            reply.status = ReplyStatus::FAILED;
            reply.text = "out of memory";
        }
    }
}

} // namespace

void RunWorker(int socket, const WorkerLimits &limits) {
    GiveWay();
    QueryRunner runner(limits.runner);
    const PrivateMemory memory;
    const uint64_t memory_at_start = memory.Bytes();
    EnterSandbox(limits.runner.memory_bytes + limits.other_memory_bytes,
                 limits.runner.reply_bytes_max + (1 << 20));
    ResultPacket result;
    bool is_open = SendPacket(socket, &result, sizeof(result)); // ready
    while (is_open) {
        JobPacket job;
        std::vector<OwnedFd> files;
        WaitReadable(socket, -1);
        const Received received = ReceivePacket(socket, &job, sizeof(job), files, PIECES_MAX);
        if (received == Received::NOTHING) {
            continue;
        }
        if (received == Received::CLOSED) {
            return;
        }
        Reply reply = RunJob(runner, job, std::move(files));
        const OwnedFd file = Encode(reply, result.reply_bytes);
        // Allocators keep what a large job has used, and the next one would find its limit reached.
        result.is_last = memory.Bytes() > memory_at_start + limits.keep_memory_bytes ? 1 : 0;
        result.status = static_cast<uint32_t>(reply.status);
        is_open = SendPacket(socket, &result, sizeof(result), {file.Get()});
    }
}

} // namespace rawduck_ceph
