#include "client/tierctl/verbs.h"

#include "client/tierctl/command.h"

#define USER_FLAG                                                                                            \
	{                                                                                                    \
		"user", "USER", "the job's owner (default: you, or who else has one of that name)"           \
	}
#define END                                                                                                  \
	{                                                                                                    \
		NULL, NULL, NULL                                                                             \
	}

static const struct verb_flag user_flags[] = { USER_FLAG, END };

static const struct verb_flag drop_flags[] = {
	USER_FLAG,
	{ "force", NULL, "also if ranks are attached" },
	{ "lost", NULL, "also if its files cannot be opened: destroys what is left of it" },
	{ "yes", NULL, "do not ask" },
	END,
};

static const struct verb_flag snapshot_flags[] = {
	USER_FLAG,
	{ "delete", NULL, "the snapshot of that name goes, and the room that it took" },
	{ "lost", NULL, "with --delete: destroy one whose map cannot be read, for good" },
	END,
};

static const struct verb_flag rollback_flags[] = {
	USER_FLAG,
	{ "force", NULL, "also if ranks are attached" },
	{ "yes", NULL, "do not ask" },
	END,
};

static const struct verb_flag read_flags[] = {
	USER_FLAG,
	{ "state", "STATE",
	  "parameter, master, or of the optimizer m (exp_avg), v (exp_avg_sq), momentum (parameter)" },
	{ "output", "FILE", "where the values go (standard output)", 'o' },
	{ "unkept", NULL, "without memory for them, of a job that is not trained" },
	END,
};

static const struct verb_flag export_flags[] = {
	USER_FLAG,
	{ "output", "FILE", "or a folder that is there (JOB.safetensors)", 'o' },
	{ "format", "parameter|fp32", "the parameters as they are, or their masters (parameter)" },
	{ "with-optimizer", NULL, "what the optimizer keeps, too" },
	{ "shard-size", "SIZE", "several files of at most that, such as 5GB, and their index" },
	{ "force", NULL, "files that are there are replaced" },
	END,
};

static const struct verb_flag fork_flags[] = {
	USER_FLAG,
	{ "snapshots", "N", "of all jobs of the store, that are to have room (as many as before)" },
	END,
};

static const struct verb_flag import_flags[] = {
	{ "optimizer", "adamw|adam|sgd|lion|none",
	  "numbers become trainable, with it (all is frozen: a source for other jobs)" },
	{ "format", "bf16|fp16|fp32", "of what is trainable (as in the files); F32 gives masters" },
	{ "step", "N", "after which the optimizer's state was kept (as the files say)" },
	{ "ignore", "PATTERN", "tensors of such names are left out" },
	{ "replace", NULL, "the job of that name, which it destroys once the new one is complete" },
	{ "world-size", "N", "ranks (1)" },
	{ "stage", "0|1|2|3", "of ZeRO (3)" },
	{ "group", "RATES", "of the parameter group, all in one, such as weight_decay=0.1,momentum=0.9" },
	{ "clip", "X", "global norm to clip gradients to (none)" },
	{ "parameters-on", "host|nvme|auto", "where they live (nvme at stage 3, else host)" },
	{ "optimizer-on", "host|nvme|auto", "where its state lives (nvme)" },
	{ "gradients-on", "host|nvme", "where their sums are (host, if they fit)" },
	{ "durability", "step|none|SECONDS", "how often steps are committed (as the daemon says)" },
	{ "host-budget", "SIZE", "most host memory of the job (as the daemon says)" },
	{ "nvme-budget", "SIZE", "most bytes on NVMe (as the daemon says)" },
	{ "blobs", "SIZE", "room for what trainers keep beside the state (none)" },
	{ "snapshots", "N", "that are to have room on NVMe (none)" },
	{ "snapshot-every", "N", "each so-many-th step is kept by itself (none)" },
	{ "snapshot-keep", "N", "of those the last (as many as there is room for)" },
	END,
};

static const struct verb_flag scrub_flags[] = {
	USER_FLAG,
	{ "now", NULL, "the rest of the pass at once, when the devices have nothing else to do" },
	{ "stop", NULL, "at its pace again" },
	END,
};

static const struct verb_flag doctor_flags[] = {
	{ "quick", NULL, "write and read nothing to find out how fast the disks are" },
	END,
};

static const struct verb_flag drain_flags[] = {
	{ "timeout", "SECONDS", "wait no longer (for ever)" },
	{ "undo", NULL, "jobs may be opened again" },
	END,
};

static const struct verb_flag top_flags[] = {
	{ "once", NULL, "one look, with the rates of a second" },
	{ "interval", "SECONDS", "between two (2), or, with --once, of the rates" },
	END,
};

static const struct verb_flag watch_flags[] = {
	USER_FLAG,
	{ "steps", NULL, "each step that is applied or durable, too" },
	{ "count", "N", "end after so many events" },
	{ "timeout", "SECONDS", "end after that time" },
	END,
};

static const struct verb_flag trace_flags[] = {
	USER_FLAG,
	{ "seconds", "N", "end after that time (10, or with --steps none)" },
	{ "steps", "N", "end after so many whole steps" },
	{ "output", "FILE", "or a folder; \"-\" is the standard output (JOB.trace.json)", 'o' },
	{ "force", NULL, "a file that is there is replaced" },
	END,
};

static const struct verb_flag plan_flags[] = {
	{ "parameters", "N", "of a model of which only that is known, such as 7B: gives bounds" },
	{ "like", "JOB", "the units and options of that job: to the byte, as from FILE and the next two" },
	USER_FLAG,
	{ "layers", "N", "the example gpt of so many layers" },
	{ "width", "N", "of its vectors (256)" },
	{ "context", "N", "bytes that it sees (128)" },
	{ "units", "FILE", "a list of units in JSON" },
	{ "world-size", "N", "ranks (1; of --like, its own; of --parameters it has to be given)" },
	{ "format", "bf16|fp16|fp32", "of the parameters (bf16)" },
	{ "optimizer", "adamw|adam|lion|momentum|none|sgd", "momentum: SGD with it (adamw)" },
	{ "moments", "fp32|bf16|int8", "how the optimizer keeps what it keeps (fp32)" },
	{ "stage", "0|1|2|3", "only this ZeRO stage (all)" },
	{ "local-ranks", "K", "ranks on this node (all)" },
	{ "gradients", "host|nvme", "where their sums are (host, if they fit)" },
	{ "gradient-buffers", "N", "of each rank (2)" },
	{ "gradient-bytes", "SIZE",
	  "of each rank's room for gradients, in the place of buffers of fixed sizes" },
	{ "groups", "N", "of parameters, of --units (as many as its tensors are in)" },
	{ "frozen", "SIZE", "of tensors that are not trained, beside --parameters (0)" },
	{ "blobs", "SIZE", "room for what trainers keep beside the state (none)" },
	{ "host-budget", "SIZE", "the most that the job may hold there (all that is free)" },
	{ "nvme-budget", "SIZE", "in the same way" },
	{ "largest-unit", "N", "elements of the largest layer of --parameters (a 32nd to a half)" },
	{ "micro-batches", "G", "in a step (1)" },
	{ "pushed-once", NULL, "each unit, in a step: one rank has nothing to sum" },
	{ "durability", "step|none|SECONDS",
	  "how often steps are committed (each step, or of state in host memory each minute)" },
	{ "snapshots", "N", "that are to have room on NVMe (none)" },
	{ "step-ms", "N", "that a step takes: what is written in a day, and how long that lasts" },
	{ "endurance", "SIZE", "that is left of it, of all paths (the daemon is asked)" },
	{ "host", "SIZE", "free on this node (the daemon is asked)" },
	{ "nvme", "SIZE", "in the same way" },
	{ "gpu", "COUNTxSIZE", "GPUs here and the memory of each; or SIZE, of one for each rank" },
	{ "activations", "SIZE", "that a rank keeps on its GPU (what is left there is told)" },
	{ "pcie", "GB/s", "that a GPU is sent, and sends at once (25, as of PCIe 4 with 16 lanes)" },
	END,
};

_Static_assert(ARRAY_LENGTH(plan_flags) <= VERB_MAX_FLAGS + 1 &&
		       ARRAY_LENGTH(import_flags) <= VERB_MAX_FLAGS + 1,
	       "every flag has a place for its value");

const struct verb verbs[] = {
	{ "status", command_status, "", "the daemon and what it has in use", NULL },
	{ "jobs", command_jobs, "[JOB]", "the jobs that you may see; of one, what each rank does",
	  user_flags },
	{ "drop", command_drop, "JOB", "end a job and destroy its state, snapshots too", drop_flags },
	{ "units", command_units, "JOB", "a job's units: where they are, leases, versions", user_flags },
	{ "tensors", command_tensors, "JOB [UNIT]",
	  "the tensors of a job's units: format, shape, where they are", user_flags },
	{ "read", command_read, "JOB TENSOR", "a tensor's values as raw bytes, of one step or JOB@SNAPSHOT",
	  read_flags },
	{ "export", command_export, "JOB",
	  "a job's (JOB@SNAPSHOT's) tensors, of one step, to safetensors files", export_flags },
	{ "verify", command_verify, "JOB", "read all that a job has on NVMe, and name what is damaged",
	  user_flags },
	{ "import", command_import, "JOB FILE", "a new job with the tensors of safetensors files",
	  import_flags },
	{ "scrub", command_scrub, "[JOB]", "how far the slow reading of all that lies on NVMe is",
	  scrub_flags },
	{ "inspect", command_inspect, "FILE",
	  "the tensors of a safetensors file, or of those of an index or folder", NULL },
	{ "blobs", command_blobs, "JOB", "what a job's trainers keep beside its state", user_flags },
	{ "snapshot", command_snapshot, "JOB NAME", "keep a job's step under a name, on its devices",
	  snapshot_flags },
	{ "snapshots", command_snapshots, "JOB", "those that a job has, and what they take", user_flags },
	{ "diff", command_diff, "JOB FROM [TO]", "how much differs between snapshots, or to the last step",
	  user_flags },
	{ "rollback", command_rollback, "JOB NAME", "a job becomes what its snapshot is", rollback_flags },
	{ "fork", command_fork, "JOB[@NAME] NEW",
	  "a new job that begins as a snapshot, or as the last step is", fork_flags },
	{ "reserve", command_reserve, "JOB N", "room for so many snapshots of a job, more than it has",
	  user_flags },
	{ "retain", command_retain, "JOB K [N]",
	  "each K-th step of a job is kept by itself, and the last N of those; 0: none", user_flags },
	{ "share", command_share, "JOB [none|read|train] [GROUP]",
	  "whom a job is shared with, and for what; or from now on", user_flags },
	{ "leases", command_leases, "[JOB]", "which ranks hold which units", user_flags },
	{ "evict", command_evict, "JOB [UNIT…]", "units that nobody holds leave host memory", user_flags },
	{ "release", command_release, "JOB",
	  "an idle job gives its host memory back; its state stays on NVMe", user_flags },
	{ "drain", command_drain, "", "no new jobs, and wait until no rank has one open", drain_flags },
	{ "tiers", command_tiers, "", "host memory and NVMe paths", NULL },
	{ "top", command_top, "", "what node and jobs do now, again and again", top_flags },
	{ "watch", command_watch, "[JOB]", "what happens, as lines, until it is interrupted", watch_flags },
	{ "trace", command_trace, "JOB",
	  "a timeline of reads, updates, writes and waits, for ui.perfetto.dev", trace_flags },
	{ "metrics", command_metrics, "", "figures for Prometheus", NULL },
	{ "plan", command_plan, "[FILE]", "what a model needs, and whether it fits here", plan_flags },
	{ "doctor", command_doctor, "[FILE]", "what this machine has of what tierd needs, and what it lacks",
	  doctor_flags },
	{ "config", command_config, "check [FILE]", "what tierd makes of a configuration", NULL },
	{ "ping", command_ping, "", "is the daemon there, and how fast does it answer", NULL },
	{ "help", command_help, "[COMMAND]", "this; of a command, what it takes", NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};
