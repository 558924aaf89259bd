#include "ceph/helper/supervisor/reply_cache.hpp"

#include "ceph/channel/memory_file.hpp"
#include "ceph/protocol/messages.hpp"

#include <exception>

namespace rawduck_ceph {

namespace {

//! The reply as it is sent the next time: no worker has run, and nothing of the object was read. Empty for a
//! reply that is not kept.
std::string AsKept(const std::string &encoded) {
    uint16_t version = 0;
    Reply reply = DecodeReply(encoded.data(), encoded.size(), version);
    if (version != PROTOCOL_VERSION || reply.status != ReplyStatus::OK) {
        return {};
    }
    reply.cached = true;
    reply.read_bytes = 0;
    reply.cpu_us = 0;
    return EncodeReply(reply);
}

} // namespace

const std::string *ReplyCache::Find(const CallKey &key) {
    auto found = by_key_.find(key);
    if (found == by_key_.end()) {
        return nullptr;
    }
    entries_.splice(entries_.begin(), entries_, found->second);
    return &found->second->encoded;
}

void ReplyCache::Keep(const CallKey &key, int file, uint64_t bytes) {
    if (bytes > KEPT_REPLY_BYTES_MAX || bytes + ENTRY_BYTES > bytes_max_) {
        return;
    }
    Entry entry{key, {}};
    try {
        std::string encoded(bytes, 0);
        ReadMemoryFile(file, &encoded[0], bytes);
        entry.encoded = AsKept(encoded);
    } catch (const std::exception &) {
        return; // a worker's malformed reply: its client says what is wrong with it
    }
    if (entry.encoded.empty()) {
        return;
    }
    if (auto known = by_key_.find(key); known != by_key_.end()) {
        Erase(known->second);
    }
    while (bytes_ + entry.Bytes() > bytes_max_) {
        Erase(std::prev(entries_.end()));
    }
    bytes_ += entry.Bytes();
    entries_.push_front(std::move(entry));
    by_key_[key] = entries_.begin();
}

void ReplyCache::Erase(Entries::iterator entry) {
    bytes_ -= entry->Bytes();
    by_key_.erase(entry->key);
    entries_.erase(entry);
}

} // namespace rawduck_ceph
