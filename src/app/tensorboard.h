// tensorboard.h -- event files for TensorBoard, made of the lines of metrics.jsonl.
//
// A file is a sequence of records: u64 length, u32 masked CRC-32C of the length, an Event in protobuf's encoding, u32
// masked CRC-32C of the Event; all little-endian. The first Event names the version, the second says START at step 0:
// TensorBoard then drops what it has read of the run before.
//
// A start writes its file anew from metrics.jsonl and removes the files before it. So a folder has one file, in which
// no step appears twice after a resume: also programs see that which read all files and drop nothing, such as tbparse.
#pragma once
#include <string>
#include <vector>

// The record of a line of metrics.jsonl; "" if it has nothing to show. Numbers of "train" and "val" become scalars in
// the groups train, speed and val; the scores of a task scalars in the group task; samples and warnings texts. 65.
std::string event_record(const std::string& line);
// Writes the folder's file from its metrics.jsonl, resumes honoured; returns its path. Errors 66, 74.
std::string write_event_file(const std::string& folder);
std::vector<std::string> event_files(const std::string& folder);    // their paths, sorted; also of other programs
