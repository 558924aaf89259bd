#include "volume/mount/queue_options.hpp"

#include "common/error.hpp"
#include "common/text/key_values.hpp"
#include "common/text/size.hpp"

namespace rawduck {
namespace {

//! Whole LBAs, of whatever size.
constexpr uint64_t TRANSFER_STEP = 4 * KIB;

struct QueueKey {
    const char *name;
    //! Throws Error INVALID that says what is allowed.
    void (*put)(const std::string &value, MountOptions &options);
    std::string (*show)(const MountOptions &options);
};

void PutMode(const std::string &value, MountOptions &options) {
    options.io.queue_mode = ParseQueueMode(value);
}

void PutDepth(const std::string &value, MountOptions &options) {
    constexpr size_t MOST_DIGITS = 9;
    const bool is_number = !value.empty() && value.size() <= MOST_DIGITS &&
                           value.find_first_not_of("0123456789") == std::string::npos;
    const unsigned long depth = is_number ? std::stoul(value) : 0;
    if (depth < 1 || depth > QUEUE_DEPTH_MAX) {
        throw Error(ErrorCode::INVALID, "not a number from 1 to " + std::to_string(QUEUE_DEPTH_MAX));
    }
    options.io.queue_depth = static_cast<uint32_t>(depth);
}

void PutMaxTransfer(const std::string &value, MountOptions &options) {
    const uint64_t bytes = ParseSize(value, "max_transfer");
    if (bytes != 0 &&
        (bytes < TRANSFER_STEP || bytes > MAX_COMMAND_BYTES || !IsAligned(bytes, TRANSFER_STEP))) {
        throw Error(ErrorCode::INVALID, "neither 0 (the default of the device) nor a multiple of " +
                                            SizeText(TRANSFER_STEP) + " up to " +
                                            SizeText(MAX_COMMAND_BYTES));
    }
    options.max_transfer_bytes = static_cast<uint32_t>(bytes);
}

void PutPolling(const std::string &value, MountOptions &options) {
    if (value != "on" && value != "off") {
        throw Error(ErrorCode::INVALID, "neither on nor off");
    }
    options.polling = value == "on";
}

constexpr QueueKey KEYS[] = {
    {"mode", PutMode, [](const MountOptions &o) { return std::string(QueueModeName(o.io.queue_mode)); }},
    {"depth", PutDepth, [](const MountOptions &o) { return std::to_string(o.io.queue_depth); }},
    {"max_transfer", PutMaxTransfer,
     [](const MountOptions &o) {
         return o.max_transfer_bytes == 0 ? std::string("0") : SizeText(o.max_transfer_bytes);
     }},
    {"polling", PutPolling, [](const MountOptions &o) { return std::string(o.polling ? "on" : "off"); }}};

const QueueKey &FindKey(const std::string &name) {
    std::string known;
    for (const QueueKey &key : KEYS) {
        if (name == key.name) {
            return key;
        }
        known += std::string(known.empty() ? "" : ", ") + key.name;
    }
    throw Error(ErrorCode::INVALID, "no such key; known keys: " + known);
}

[[noreturn]] void Refuse(const std::string &text, const std::string &why) {
    throw Error(ErrorCode::INVALID, std::string(QUEUES_SETTING) + ": " + text + ": " + why +
                                        "; write pairs such as \"" + QueueOptionsText(MountOptions()) +
                                        "\", which are the defaults");
}

} // namespace

void ParseQueueOptions(const std::string &text, MountOptions &options) {
    std::vector<KeyValue> pairs;
    if (text.find_first_not_of(' ') != std::string::npos && text != "default") {
        try {
            pairs = ParseKeyValues(text);
        } catch (const Error &error) {
            Refuse("\"" + text + "\"", error.what());
        }
    }
    for (const KeyValue &pair : pairs) {
        try {
            FindKey(pair.key).put(pair.value, options);
        } catch (const Error &error) {
            Refuse("\"" + pair.key + "=" + pair.value + "\"", error.what());
        }
    }
}

std::string QueueOptionsText(const MountOptions &options) {
    std::string text;
    for (const QueueKey &key : KEYS) {
        text += std::string(text.empty() ? "" : ",") + key.name + "=" + key.show(options);
    }
    return text;
}

} // namespace rawduck
