//! libFuzzer target: what reaches the OSD or comes back from it, before DuckDB sees it. The first byte
//! chooses the decoder; checksums are made right, so that what is behind them is reached.
#include "ceph/helper/worker/handed_over_object.hpp"
#include "ceph/parquet/column_ranges.hpp"
#include "ceph/parquet/object_statistics.hpp"
#include "ceph/parquet/parquet_summary.hpp"
#include "ceph/protocol/bytes.hpp"
#include "ceph/protocol/messages.hpp"
#include "common/crc32c.hpp"

#include <cstdlib>
#include <cstring>

using namespace rawduck_ceph;

namespace {

std::string Sealed(const char *magic, const char *data, size_t length) {
    Frame frame = {};
    std::memcpy(frame.magic, magic, sizeof(frame.magic));
    frame.version = PROTOCOL_VERSION;
    frame.body_bytes = static_cast<uint32_t>(length);
    frame.crc = rawduck::Crc32c(rawduck::Crc32c(0, &frame, sizeof(frame)), data, length);
    return std::string(reinterpret_cast<const char *>(&frame), sizeof(frame)) + std::string(data, length);
}

//! A job's file as an object class would hand it over, with the ranges of `data`.
void ReadHandedOver(const char *data, size_t length) {
    JobPacket job;
    job.piece_count = 1;
    job.object_bytes = 1 << 16;
    job.request_bytes = 3;
    job.range_counts[0] = static_cast<uint8_t>(data[0]) % 8;
    job.file_bytes[0] = length;
    std::vector<OwnedFd> files;
    files.push_back(MakeMemoryFile("fuzz", std::string(data, length)));
    try {
        HandedOverObject object(job, std::move(files));
        std::string bytes(1 << 10, '\0');
        for (uint64_t offset = 0; offset < object.Size(); offset += bytes.size()) {
            object.Read(offset, bytes.size(), &bytes[0]);
        }
    } catch (const std::runtime_error &) {
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *input, size_t length) {
    if (length == 0) {
        return 0;
    }
    const char *data = reinterpret_cast<const char *>(input) + 1;
    length--;
    uint16_t version = 0;
    try {
        if (input[0] % 4 == 0) {
            const std::string bytes = Sealed("RDQR", data, length);
            DecodeRequest(bytes.data(), bytes.size(), version);
        } else if (input[0] % 4 == 1) {
            const std::string bytes = Sealed("RDQA", data, length);
            DecodeReply(bytes.data(), bytes.size(), version);
        } else if (input[0] % 4 == 3 && length > 0) {
            ReadHandedOver(data, length);
        } else {
            ParquetLayout layout;
            layout.footer_start = 1 << 20;
            if (CheckMetadata(data, length, layout.footer_start, &layout).empty()) {
                const uint64_t size = layout.footer_start + length;
                uint64_t end = 0;
                for (const ObjectRange &range : NeededRanges(layout, size, {"a", "b"})) {
                    if (range.start < end || range.end > size || range.end < range.start) {
                        __builtin_trap();
                    }
                    end = range.end;
                }
            }
            const auto footer = static_cast<uint32_t>(length);
            std::string tail(data, length);
            tail.append(reinterpret_cast<const char *>(&footer), sizeof footer).append("PAR1");
            ParquetSummary summary;
            SummarizeParquet(tail.data(), tail.size(), summary);
            const std::string file = "PAR1" + tail;
            const timespec modified = {};
            const auto statistics = StatisticsOf(file.data(), file.size());
            const std::string attribute = EncodeStatistics(statistics, file.size(), modified);
            if (DecodeStatistics(attribute, file.size(), modified).size() > statistics.size()) {
                std::abort();
            }
            std::string malformed(data, length);
            const uint32_t crc = rawduck::Crc32c(0, data, length);
            malformed.append(reinterpret_cast<const char *>(&crc), sizeof crc);
            DecodeStatistics(malformed, 0, modified);
        }
    } catch (const ProtocolError &) {
    }
    return 0;
}
