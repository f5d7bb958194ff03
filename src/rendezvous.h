// rendezvous.h -- how ranks find each other: sockets, proof of identity, who is who. Used by comm.cpp and its test only.
//
//     rank 0 listens; the others connect and try again until the deadline. On each connection, of whatever purpose:
//         -> Hello      rank, size, job, nonce                  fixed sizes: a stranger costs no memory
//         <- Challenge  nonce, HMAC(secret, server, Hello, nonce)
//         -> Proof      Card (host, pid), HMAC(secret, client, Hello, nonce, Card)
//         <- Reply      accepted, or the code and the line to end with
//     when all are there, rank 0 sends everybody the table of all Cards.
//
// On one host the socket is an abstract Unix one, named by user and job; both sides check the other's uid and the secret is empty.
// Between hosts it is TCP and only loopback is served without a secret. What follows the handshake is clear text: the network
// between hosts must be private. A connection that does not prove itself is dropped: it never counts as a rank and delays none.
#pragma once
#include <cstdint>
#include <string>
#include <vector>
#include "comm.h"

// What a rank says about itself.
struct Card {
    int32_t rank, pid;
    uint32_t port;          // of its listener for data connections; 0 where none is needed
    char address[48];       // of that listener, as rank 0 sees it; empty: where rank 0 is
    char host[64];
    char host_id[160];      // equal on ranks that can share memory
};

struct Meeting {
    Card me = {};
    int size = 1;
    std::string job, secret, master_addr;   // master_addr empty: one host, Unix sockets
    int master_port = 0;
    double deadline = 0;                    // by now_seconds()
    double patience = 0;                    // seconds until it, for messages
    int listener = -1;                      // for data connections
    std::vector<Card> cards;                // by rank
    std::vector<int> control;               // rank 0: the connection to each rank, own -1; other ranks: one entry, to rank 0
};

// All ranks meet. Error 2: claimed twice, sizes differ, no secret; 69: ranks missing, not authenticated, port in use.
Meeting meet_ranks(const World& world, double patience);

// One descriptor for all ranks of a host: `leader` makes a memory file of `bytes` and the others get it.
int meet_memory(const Meeting& meeting, int leader, int local_size, size_t bytes);

// Connections for data to `peers` (ranks, own left out), in their order; lower ranks listen. `plane` tells two sets apart.
enum class Purpose : uint32_t { control = 1, memory, data, leaders };
std::vector<int> meet_peers(const Meeting& meeting, Purpose plane, const std::vector<int>& peers);

// The job's secret from LOCKSTEP_SECRET or LOCKSTEP_SECRET_FILE (mode 0600, else Error 2); empty if neither is set.
std::string job_secret();

struct Digest { uint8_t bytes[32]; };
Digest hmac_sha256(const std::string& key, const std::string& message);         // RFC 2104
bool send_all(int fd, const void* data, size_t bytes, double seconds);          // false: closed, failed or too slow
bool receive_all(int fd, void* data, size_t bytes, double seconds);
