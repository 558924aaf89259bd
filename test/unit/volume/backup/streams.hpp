//! Streams of snapshots in memory: sent, received, taken apart and spoiled.
#pragma once

#include "support/volume_fixture.hpp"
#include "volume/backup/receiver.hpp"
#include "volume/backup/sender.hpp"
#include "volume/backup/volume_destination.hpp"
#include "volume/check.hpp"
#include "volume/names/snapshot_name.hpp"

#include <map>

namespace rawduck {

class StringSink final : public ByteSink {
  public:
    void Write(const void *data, uint64_t length) override {
        bytes.append(static_cast<const char *>(data), length);
    }
    void Finish() override { finished = true; }
    std::string bytes;
    bool finished = false;
};

class StringSource final : public ByteSource {
  public:
    explicit StringSource(std::string bytes) : bytes_(std::move(bytes)) {}
    // Not all at once, as pipes do.
    uint64_t Read(void *data, uint64_t length) override {
        const uint64_t count = std::min<uint64_t>({length, bytes_.size() - at_, 70000});
        memcpy(data, bytes_.data() + at_, count);
        at_ += count;
        return count;
    }
    const std::string &Name() const override { return name_; }

  private:
    const std::string bytes_, name_ = "a stream";
    size_t at_ = 0;
};

inline std::string Sent(const std::string &target, const std::string &file, const SendOptions &options = {}) {
    Sender sender(target, file, options, MountOptions());
    StringSink sink;
    while (sender.SendPiece(sink)) {
    }
    EXPECT_TRUE(sink.finished);
    EXPECT_EQ(sink.bytes.size(), sender.StreamBytes());
    return sink.bytes;
}

//! Returns the bytes that were written.
inline uint64_t Receive(VolumePin volume, const std::string &file, const std::string &stream,
                        bool overwrite = false, uint64_t keep_bytes = 64 * MIB) {
    Receiver receiver(std::make_unique<StringSource>(stream),
                      std::make_unique<VolumeDestination>(std::move(volume), file, overwrite), keep_bytes);
    while (receiver.ReceivePiece()) {
    }
    return receiver.WrittenBytes();
}

inline uint64_t Receive(const std::string &target, const std::string &file, const std::string &stream,
                        bool overwrite = false) {
    return Receive(PinVolume(target, MountOptions()), file, stream, overwrite);
}

//! Where records begin, and the length of all.
inline std::vector<size_t> Boundaries(const std::string &stream) {
    std::vector<size_t> found{0};
    while (found.back() < stream.size()) {
        StreamRecordHeader header;
        std::string problem;
        EXPECT_TRUE(ParseRecordHeader(stream.substr(found.back(), STREAM_HEADER_BYTES), header, problem));
        found.push_back(found.back() + STREAM_HEADER_BYTES + header.payload_bytes);
    }
    return found;
}

//! All files of a volume but those that are received; how long a stream was in a name is not compared.
inline std::map<std::string, std::string> Contents(Volume &volume) {
    std::map<std::string, std::string> contents;
    for (const FileInfo &info : volume.Files()) {
        if (info.name.find(".receiving") == std::string::npos && SnapshotOfOrigin(info.name).empty()) {
            contents[info.name] = ReadAll(volume, info.name);
        }
    }
    return contents;
}

//! Remarks on files that are being received are none of damage.
inline void RequireSound(const std::string &target) {
    for (const CheckFinding &finding : CheckVolume(target)) {
        EXPECT_TRUE(finding.severity == CheckFinding::Severity::OK || finding.what.rfind("file ", 0) == 0)
            << finding.what << ": " << finding.detail;
    }
}

} // namespace rawduck
