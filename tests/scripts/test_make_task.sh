#!/bin/sh
# test_make_task.sh -- data/make_task.py: files of the published forms become questions for --task.
. tests/lib.sh
export PYTHONUTF8=1
find_python "csv, json" "data/make_task.py"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || skip_all "data/make_task.py" "Python before 3.10"
makes() {           # NAME KIND FILES...: in $tmp, of which $tmp/want is wanted
    name=$1; shift
    (cd "$tmp" && "$python" "$root/data/make_task.py" "$@" >got) || { fail "$name" "exit code $?"; return; }
    check "$name" diff "$tmp/want" "$tmp/got"
    [ "$#" -lt 2 ] || cat "$tmp/got" >>"$tmp/all.jsonl"
}
root=$PWD
cat >"$tmp/hellaswag_val.jsonl" <<END
{"ind": 24, "activity_label": "Roof [x] shingle removal", "ctx_a": "A man is sitting on a roof.", "ctx_b": "he \
McKay", "ctx": "", "split": "val", "split_type": "indomain", "label": 3, "endings": ["is [substeps] using wrap  \
to wrap.", " is ripping.", "holds a cube [title] How", "starts [step]"], "source_id": "activitynet~v_1"}
{"ind": 25, "activity_label": "Ski", "ctx_a": "É", "ctx_b": "", "label": "0", "endings": ["ü", "b", "c", "d"]}
END
cat >"$tmp/want" <<END
{"ctx": "Roof shingle removal: A man is sitting on a roof. He mckay", "endings": ["is using wrap to wrap.", "is \
ripping.", "holds a cube. How", "starts "], "label": 3}
{"ctx": "Ski: É", "endings": ["ü", "b", "c", "d"], "label": 0}
END
makes HellaSwag hellaswag hellaswag_val.jsonl
cat >"$tmp/ARC-Easy-Test.jsonl" <<END
{"id": "M_1", "question": {"stem": "Which is it?", "choices": [{"text": "ice", "label": "A"}, {"text": "fog", \
"label": "B"}, {"text": "sun", "label": "C"}]}, "answerKey": "C"}

{"id": "M_2", "question": "And this?", "choices": {"text": ["a", "b", "c", "d", "e"], "label": ["1", "2", "3", \
"4", "5"]}, "answerKey": "2"}
END
cat >"$tmp/want" <<END
{"ctx": "Question: Which is it?\nAnswer:", "endings": ["ice", "fog", "sun"], "label": 2}
{"ctx": "Question: And this?\nAnswer:", "endings": ["a", "b", "c", "d", "e"], "label": 1}
END
makes "ARC, both forms" arc ARC-Easy-Test.jsonl
cat >"$tmp/valid.jsonl" <<END
{"goal": "To boil water", "sol1": "heat it", "sol2": "cool it"}
{"goal": "To cut", "sol1": "a spoon", "sol2": "a knife"}
END
printf '0\n1\n' >"$tmp/valid-labels.lst"
cat >"$tmp/want" <<END
{"ctx": "Question: To boil water\nAnswer:", "endings": ["heat it", "cool it"], "label": 0}
{"ctx": "Question: To cut\nAnswer:", "endings": ["a spoon", "a knife"], "label": 1}
END
makes "PIQA with a file of labels" piqa valid.jsonl valid-labels.lst
sed -n 's/}$/, "label": 1}/; 2p' "$tmp/valid.jsonl" >"$tmp/one.jsonl"
sed -i 1d "$tmp/want"
makes "PIQA with labels inside" piqa one.jsonl
printf '"Which, of\nthese?",one,"two ""2""",three,four,B\n' >"$tmp/high_school_us_history_test.csv"
begin='The following are multiple choice questions (with answers) about high school us history.\n\n'
cat >"$tmp/want" <<END
{"ctx": "${begin}Which, of\nthese?\nA. one\nB. two \"2\"\nC. three\nD. four\nAnswer:", "endings": ["A", "B", "C", \
"D"], "label": 1}
END
makes "MMLU's CSV" mmlu high_school_us_history_test.csv
tr '\n' ' ' >"$tmp/mmlu.jsonl" <<END
{"question": "Which, of\nthese?", "choices": ["one", "two \"2\"", "three", "four"], "answer": 1,
    "subject": "high_school_us_history"}
END
makes "MMLU's JSON" mmlu mmlu.jsonl
echo '{"activity_label": "天", "ctx_a": "", "ctx_b": "地", "label": 1, "endings": ["上", "下"]}' >"$tmp/zh.jsonl"
echo '{"ctx": "天: 地", "endings": ["上", "下"], "label": 1, "delimiter": ""}' >"$tmp/want"
makes "no blank in Chinese" hellaswag zh.jsonl
printf '0\n' >"$tmp/valid-labels.lst"
too_few() { ! "$python" data/make_task.py piqa "$tmp/valid.jsonl" "$tmp/valid-labels.lst"; }
check "too few labels are refused" too_few
check "a model" $train --layers 1 --heads 2 --channels 32 --seq-len 32 --batch-size 2 --total-batch-size 64 --steps 1 \
    --data tests/golden/lines.txt --sample-every 0 --out-dir "$tmp/run"
expect "eval takes all of them" 0 '^all acc .* \(10, chance' $train eval "$tmp/run" --task "$tmp/all.jsonl"
summary
