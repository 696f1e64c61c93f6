"""The daemon's mutants, in the form of table.py; those of the library, and of the pages that they share."""

PAGES = "proto/pages.h"
EVICTION = "daemon/residency/eviction.c"
STEP = "daemon/update/step.c"
WRITING = "daemon/values/writing.c"
THROTTLE = "daemon/session/throttle.c"
GPU_PACK = "daemon/gpu/pack.c"
GPU_RANK = "daemon/gpu/rank.c"
GPU_SCATTER = "daemon/gpu/scatter.c"
CHUNK_GPU = "daemon/update/chunk_gpu.c"
SHARE = "daemon/update/share.c"
WARM = "daemon/update/warm.c"

MUTANTS = (
    # Beside each other, because each builds all that there is.
    (
        "the version published after the word",
        "interleavings",
        PAGES,
        (
            ("\tatomic_store_explicit(&entry->version, version, memory_order_release);\n", ""),
            (
                "directory_word_reloads(word) + 1, offset),\n\t\t\t      memory_order_release);\n",
                "directory_word_reloads(word) + 1, offset),\n\t\t\t      memory_order_release);\n"
                "\tatomic_store_explicit(&entry->version, version, memory_order_release);\n",
            ),
        ),
    ),
    (
        "a lease believed without a second look at the word",
        "interleavings",
        PAGES,
        (("\t\tif (again == word) {", "\t\tif (true) {"),),
    ),
    (
        "a lease counted after the second look at the word",
        "interleavings",
        PAGES,
        (
            ("\t\tatomic_fetch_add_explicit(lease, 1, memory_order_seq_cst);\n", ""),
            (
                "\t\tif (again == word) {",
                "\t\tatomic_fetch_add_explicit(lease, 1, memory_order_seq_cst);\n\t\tif (again == word) {",
            ),
        ),
    ),
    (
        "no second look at the leases",
        "interleavings",
        EVICTION,
        (("\tif (!pack_holder(job, pack, only_trainable))\n\t\treturn true;", "\treturn true;"),),
    ),
    (
        "leases of ranks that have left not counted",
        "residency",
        EVICTION,
        (("return unit_holder_among(&job->members.lingering, unit);", "return NULL;"),),
    ),
    (
        "what the daemon reads evicted",
        "residency",
        EVICTION,
        ((" && residence->pins == 0 &&", " &&"),),
    ),
    (
        "what is used next evicted first",
        "residency",
        EVICTION,
        (
            (
                "return job->residency->next_use[pack] > job->residency->next_use[other];",
                "return job->residency->next_use[pack] < job->residency->next_use[other];",
            ),
        ),
    ),
    (
        "evicted for what is used later still",
        "residency",
        EVICTION,
        (("if (job->residency->next_use[owner] <= distance ||", "if ("),),
    ),
    (
        "frozen values evicted before they are written",
        "filling",
        EVICTION,
        (("!residency_flush(job, pack) &&\n", "true &&\n"),),
    ),
    (
        "a gather that can never fit left waiting",
        "residency",
        "daemon/residency/deadlock.c",
        (("\t\twaiter->done(waiter, -EDEADLK);\n", ""),),
    ),
    (
        "clipping that begins well above the bound",
        "clipping",
        STEP,
        (("norm > clip_norm", "norm > 1.1 * clip_norm"),),
    ),
    (
        "a refused push remembered beyond its epoch",
        "refused",
        "daemon/life/ready.c",
        (("\t\tmember->refused_pushes = 0;\n", ""),),
    ),
    (
        "a step taken without a push that was refused",
        "refused",
        STEP,
        (("step->refused_pushes == member->refused_pushes", "true"),),
    ),
    (
        "a refused push counted as a micro-batch",
        "refused",
        "daemon/gradients/gradient.c",
        (
            (
                "\t\trefuse_push(pending, push->is_silent, r, message);",
                "\t\tif (push->unit < job->catalog.unit_count)\n\t\t\tmember->pusher->pushed[push->unit]++;\n"
                "\t\trefuse_push(pending, push->is_silent, r, message);",
            ),
        ),
    ),
    (
        "state updated that does not match its checksums",
        "ahead",
        "daemon/update/chunk_work.c",
        (("\tif (!verify(chunk))\n\t\treturn false;\n", ""),),
    ),
    (
        "an absent tensor updated",
        "absent",
        "daemon/update/chunk_work.c",
        (
            (
                "tensor->layout.section == chunk->section && tensor->is_present &&",
                "tensor->layout.section == chunk->section &&",
            ),
        ),
    ),
    (
        "a step that an absent tensor missed counted for it",
        "absent record",
        "daemon/update/sweep.c",
        (
            (
                "\t\tunit->tensors[i].missed += !unit->tensors[i].is_frozen && !unit->tensors[i].is_present;\n",
                "\t\t(void)i;\n",
            ),
        ),
    ),
    (
        "what the next push of a buffer lacks taken as absent from one that was put aside",
        "absent",
        "daemon/gradients/spare.c",
        ((".absent = source->absent ? spare->absent : NULL,", ".absent = source->absent,"),),
    ),
    (
        "absent tensors taken as present since a step that came to nothing",
        "absent",
        "daemon/gradients/gradient.c",
        (("\tforget_present(&job->catalog.units[unit]);\n", ""),),
    ),
    (
        "steps that absent tensors missed not recorded",
        "record",
        "daemon/durability/record.c",
        (("\tat = put_missed(at, &job->catalog);\n", ""),),
    ),
    (
        "room for what absent tensors missed in a record that has none",
        "record",
        "daemon/durability/record.c",
        (("(job->location.record_format >= RECORD_FORMAT_TENSORS ? missed : 0)", "missed"),),
    ),
    (
        "an absent tensor believed to have missed more updates than there were",
        "record",
        "daemon/durability/record_unpack.c",
        (("if (missed > (unit->tensors[i].is_frozen ? 0 : progress->updates[u]))", "if (false)"),),
    ),
    (
        "room for groups of tensors in a record that has none",
        "record",
        "daemon/durability/record.c",
        (("(job->location.record_format >= RECORD_FORMAT_GROUPS ? groups : 0)", "groups"),),
    ),
    (
        "groups that tensors were moved to not recorded",
        "record",
        "daemon/durability/record.c",
        (("\tat = put_groups(at, &job->catalog);\n", ""),),
    ),
    (
        "the groups that tensors were moved to recorded as their definition",
        "record",
        "daemon/durability/record.c",
        (("\twire->group = tensor->defined_group;\n", ""),),
    ),
    (
        "groups of tensors in a record believed",
        "record",
        "daemon/recovery/record_read.c",
        (("if (groups_check(job, unit, groups, why, sizeof(why)) < 0)", "if (false)"),),
    ),
    (
        "ranks that move tensors to other groups than the others believed",
        "groups",
        STEP,
        (("\t\tr = groups_compare(member, message, sizeof(message));\n", ""),),
    ),
    (
        "tensors updated early by the groups that they leave",
        "groups",
        "daemon/update/early.c",
        (("|| job->members.ranks[rank]->has_moved)", "|| false)"),),
    ),
    (
        "tensors moved that an announced step may have updated",
        "groups",
        "daemon/update/groups.c",
        (("if (member->announced.is_made)", "if (false)"),),
    ),
    (
        "tensors moved in a step that others have closed, too",
        "groups",
        "daemon/update/groups.c",
        (("if (member->is_closed || member->next_step)", "if (false)"),),
    ),
    (
        "groups remembered beyond their epoch",
        "groups",
        "daemon/life/epoch.c",
        (("\tmember->has_moved = false;\n", ""),),
    ),
    (
        "a tensor in a group whose moments it has not",
        "groups",
        "daemon/update/groups.c",
        (("groups[group].moments != groups[tensor->defined_group].moments", "false"),),
    ),
    (
        "an announcement of the next step forgotten",
        "refused",
        STEP,
        (("\tmember->announced = member->announced_next;", "\tmember->announced.is_made = false;"),),
    ),
    (
        "an announcement remembered beyond its epoch",
        "refused",
        "daemon/life/epoch.c",
        (("\tmember->announced.is_made = member->announced_next.is_made = false;\n", ""),),
    ),
    (
        "a step decided before all gradients are summed",
        "spill",
        STEP,
        (("!gradient_is_complete(job))", "false)"),),
    ),
    (
        "a step decided while a commit freezes",
        "client",
        STEP,
        (("job->update->commit_listener->holds(job) || ", ""),),
    ),
    (
        "steps called durable that a later commit takes",
        "client",
        "daemon/durability/durable.c",
        (("awaited_answer(job->members.ranks[rank], durable->committed);", "awaited_answer(job->members.ranks[rank], job->step);"),),
    ),
    (
        "buffers beyond the plan while somebody can go on",
        "spare",
        "daemon/gradients/spare.c",
        (
            (
                "!(all_are_blocked(job, with_gathers) && (is_planned || add_extra(job)))",
                "!(is_planned ? all_are_blocked(job, with_gathers) : add_extra(job))",
            ),
        ),
    ),
    (
        "buffers beyond the plan without room",
        "spare",
        "daemon/resources/budget.c",
        (("if (job->node->resources->host_used + bytes > job->node->settings.host_budget)", "if (false)"),),
    ),
    (
        "buffers beyond the plan not given back to the node",
        "spare",
        "daemon/gradients/spare.c",
        (("\t\tspare_free(job, spare);\n\t\tbudget_give_beyond(job, bytes);\n", "\t\tspare_free(job, spare);\n"),),
    ),
    (
        "a norm that was measured before the last micro-batch",
        "measured",
        "daemon/gradients/norm.c",
        (("sum->measured > 0 && sum->measured == sum->next", "sum->measured > 0"),),
    ),
    (
        "a norm of an epoch that has ended",
        "measured",
        "daemon/gradients/gradient.c",
        (("\t\tgradient_sum_of(job, unit, rank)->measured = 0;\n", ""),),
    ),
    (
        "gradients outside of the rank's room",
        "gradient_buffers",
        "daemon/gradients/buffers.c",
        (("span.first > size_rest(member->job->gradient_buffers.room, span.bytes)", "false"),),
    ),
    (
        "gradients over others that are on their way",
        "gradient_buffers",
        "daemon/gradients/buffers.c",
        (("\t\tif (buffers_block(member, i, span))\n", "\t\tif (false)\n"),),
    ),
    (
        "a room that is smaller than a unit's gradients",
        "gradient_buffers",
        "daemon/model/gradient_buffers.c",
        (("size_align(room > most ? room : most, 4096)", "size_align(room, 4096)"),),
    ),
    (
        "put aside, whatever bytes its rank waits for",
        "gradient_buffers",
        "daemon/gradients/buffers.c",
        (("gradient_spans_meet(span_of(member, buffer), wanted);", "span_of(member, buffer).bytes > 0;"),),
    ),
    (
        "gradients in fp32 read as if they were as their parameters",
        "sums",
        "daemon/gradients/reduction.c",
        (("return part->has_wide_gradients ? REDUCE_FP32 : ", "return "),),
    ),
    (
        "first values as narrow as parameters where gradients are in fp32",
        "sums",
        "daemon/model/sums.c",
        (("	return is_as_parameters(job, unit_part(unit, section));", "	return sums_are_as_pushed(job);"),),
    ),
    (
        "gradients of one part in two formats",
        "catalog",
        "daemon/model/catalog.c",
        (("tensor->gradient_format == 0 && unit_layout_has_wide(layout, tensor->layout.section)", "false"),),
    ),
    (
        "a rollback under ranks without being forced",
        "store_tasks",
        "daemon/recovery/roll_back.c",
        (("\tif (ranks[0] && !request->force)", "\tif (false)"),),
    ),
    (
        "a rollback while something is in flight",
        "store_tasks",
        "daemon/durability/store_task.c",
        (("(job->members.count == 0 && job_is_quiet(job))", "job->members.count == 0"),),
    ),
    (
        "the newest of the steps that are kept deleted first",
        "store_tasks",
        "daemon/durability/retention.c",
        (("= retention->is_deleting ? census.oldest :", "= retention->is_deleting ? census.newest :"),),
    ),
    (
        "a user's snapshots deleted to keep steps",
        "store_tasks",
        "daemon/durability/retention.c",
        (("return strcmp(snapshot->name, name) == 0;", "return true;"),),
    ),
    (
        "an early update while the last step is not committed",
        "early",
        "daemon/update/early.c",
        (("!job->update->commit_listener->is_behind(job);", "true;"),),
    ),
    (
        "a pack updated before its backup",
        "backup",
        "daemon/durability/backup.c",
        (("\tif (!backup || !backup->is_running)\n\t\treturn true;", "\treturn true;"),),
    ),
    (
        "written state not backed up before its first update",
        "state_write",
        "daemon/durability/backup.c",
        (("stream.state < STATE_SLOTS || job->location.has_given_slots", "stream.state < STATE_SLOTS"),),
    ),
    (
        "what a draft reads believed",
        "draft",
        "daemon/values/draft_storage.c",
        (("checksum(draft) == draft->checksums[draft->block] ? 0 : -EBADMSG", "0"),),
    ),
    (
        "a job laid out before all is in its draft",
        "draft",
        "daemon/life/ready.c",
        (("\t\tif (!draft_go_on(job, setup_check) && (can_start", "\t\t(void)draft_go_on(job, setup_check);\n\t\tif ((can_start"),),
    ),
    (
        "values written before those that came before them, in a draft",
        "draft",
        "daemon/values/tensor.c",
        (("(job->state == JOB_FILLING && !job->values->draft)", "job->state == JOB_FILLING"),),
    ),
    (
        "a draft that is written when its job goes not given up",
        "draft",
        "daemon/life/state.c",
        (("\tdraft_cancel(job);\n", ""),),
    ),
    (
        "values written under readers that copy",
        "writing",
        WRITING,
        (("readers_are_copying(job) || ", ""),),
    ),
    (
        "values written while somebody reads the pack",
        "writing",
        WRITING,
        (("are_free &= !residency_is_in_use(job, pack);", ""),),
    ),
    (
        "warm state kept that was written elsewhere",
        "writing",
        WRITING,
        (("\t\t\twarm_forget_pack(job, pack);\n", "\t\t\t;\n"),),
    ),
    (
        "warm state not written before values are",
        "writing",
        WRITING,
        (("\tif (!warm_has_dirty(job)) {", "\tif (true) {"),),
    ),
    (
        "gradients summed over values that are written",
        "writing",
        "daemon/gradients/gradient.c",
        (("job->current.state >= WRITING_DECIDED ||", ""),),
    ),
    (
        "a record that does not say that units were updated more often than there were steps",
        "writing",
        WRITING,
        (("\treturn has_earlier ? durable_note_earlier_updates(job) : 0;", "\treturn 0;"),),
    ),
    (
        "a step taken beside a writing",
        "writing",
        STEP,
        (("\tif (job->current.closed_count == 0 || pending->is_writing ==", "\tif (true || pending->is_writing =="),),
    ),
    (
        "other values of a frozen tensor taken in a writing",
        "writing",
        "daemon/values/tensor.c",
        (("is_compared = tensor->is_frozen && job->current.state == WRITING_OPEN;", "is_compared = false;"),),
    ),
    (
        "a writing applied that a rank has cancelled",
        "writing",
        WRITING,
        (("\tif (end->is_cancelled)\n", "\tif (false)\n"),),
    ),
    (
        "two numbers of updates taken for a tensor",
        "writing",
        "daemon/values/state_write.c",
        (("\telse if (tensor->has_given && tensor->given != write->step)", "\telse if (false)"),),
    ),
    (
        "updates read as they were, of a pack that has its written values",
        "writing",
        WRITING,
        (
            (
                "\treturn is_new ? updates_to_be(unit, tensor) : tensor_updates(unit, tensor);",
                "\treturn tensor_updates(unit, tensor);",
            ),
        ),
    ),
    (
        "a read of many that has failed not told",
        "batch",
        "daemon/values/batch.c",
        (("\tif (operation->status < 0 && !batch->failed)\n", "\tif (false)\n"),),
    ),
    (
        "a read of many beyond the window",
        "batch",
        "daemon/values/batch.c",
        ((" ||\n\t\t end > WINDOW_BYTES)", ")"),),
    ),
    (
        "a blob set in a reduced step counted for the next one",
        "reduced",
        "daemon/durability/blob_requests.c",
        (("+ !member_owes_step(member);", "+ 1;"),),
    ),
    (
        "a progress of another format believed",
        "record",
        "daemon/durability/record_unpack.c",
        (("\tif (progress->format != job->location.record_format)", "\tif (false)"),),
    ),
    (
        "absent gradients zeroed as if they were as wide as parameters",
        "library",
        "client/library/calls/push.c",
        (("unit_layout_gradient_element(&unit->layout, tensor->section)", "section_element_bytes(tensor->section)"),),
    ),
    (
        "a buffer given back while it is zeroed",
        "library",
        "client/library/calls/gradients.c",
        (("\twhile (buffer_is_being_zeroed(job, buffer_held(job, unit)))\n\t\tbuffer_wait_for_zeroing(job);\n", ""),),
    ),
    (
        "a buffer pushed while it is zeroed",
        "library",
        "client/library/calls/push.c",
        (("\twhile (r == 0 && buffer_is_being_zeroed(job, buffer_held(job, unit))) {", "\twhile (false) {"),),
    ),
    (
        "buffers dropped while one is zeroed",
        "library",
        "client/library/pages/buffers.c",
        (("\twhile (any_is_being_zeroed(job))", "\twhile (false)"),),
    ),
    (
        "two threads in the end of one writing",
        "library",
        "client/library/calls/writing.c",
        (("\tif (!job->is_writing_busy) {", "\tif (true) {"),),
    ),
    (
        "a job replaced under its ranks",
        "replaced",
        "daemon/life/opening.c",
        (("mode == MODE_REPLACE && (*job)->members.count > 0", "false"),),
    ),
    (
        "a job opened that is being rolled back",
        "store_tasks",
        "daemon/life/opening.c",
        (("if (job && job_is_rolling_back(job))\n", "if (false)\n"),),
    ),
    (
        "huge pages that lie in pipes lost sight of",
        "memory",
        "offload/device/memory.c",
        (("#define PIECE_BYTES (HUGE_BYTES / 2)", "#define PIECE_BYTES HUGE_BYTES"),),
    ),
    (
        "what a living process reads taken from it",
        "leaving",
        "daemon/resources/disposal.c",
        (("disposal->made.is_read && !memory_is_alone(memory)", "false"),),
    ),
    (
        "a client's memory taken that has holes",
        "reader",
        "offload/device/memory.c",
        (("lseek(fd, 0, SEEK_HOLE) != (off_t)length", "false"),),
    ),
    (
        "a client's memory taken that it can make holes in",
        "reader",
        "offload/device/memory.c",
        (("fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) < 0", "false"),),
    ),
    (
        "a client's memory taken of another size",
        "reader",
        "offload/device/memory.c",
        (("(uint64_t)status.st_size != length", "false"),),
    ),
    (
        "values written behind the end of a client's memory",
        "reader",
        "daemon/values/reader_read.c",
        (("at < place->length ? place->length - at : 0;", "WINDOW_BYTES;"),),
    ),
    (
        "page tables of a client's memory not charged",
        "reader",
        "daemon/values/reader_memory.c",
        (("return size_align(bytes / 512, 4096);", "return 0;"),),
    ),
    (
        "values of memory that come through the window",
        "library_reader",
        "client/library/connection/mapping.c",
        (("return at < mapping->bytes", "return false"),),
    ),
    (
        "who is ahead served at once",
        "session",
        THROTTLE,
        (("return !queue_is_empty(&throttle->waiting) || ahead_of(throttle, now_ns) > LINE_NS;", "return false;"),),
    ),
    (
        "who is alone made to rest",
        "session",
        THROTTLE,
        (("throttle->until_ns > now_ns && others_are_there(throttle, now_ns);", "throttle->until_ns > now_ns;"),),
    ),
    (
        "who has left forgotten while he rests",
        "session",
        THROTTLE,
        (("throttle->connections > 0 || throttle->until_ns > now_ns ||", "throttle->connections > 0 ||"),),
    ),
    (
        "a slot on a GPU overwritten before what reads it has ended",
        "gpu",
        GPU_PACK,
        (("*behind |= 1u <<", "*behind |= 0u <<"),),
    ),
    (
        "what is leased on a GPU evicted",
        "gpu",
        GPU_RANK,
        (("return rank->leases && rank->member && lease_is_held", "return !rank && lease_is_held"),),
    ),
    (
        "a gather on a GPU answered before its copy has its place",
        "gpu",
        GPU_PACK,
        (("\tgpu_pack_submit(pack);\n}\n\nvoid gpu_packs_resume", "\tgpu_pack_submit(pack);\n\tgpu_grant(pack);\n}\n\nvoid gpu_packs_resume"),),
    ),
    (
        "a rank that asks for a pack waits until other GPUs have their parts of it",
        "share",
        GPU_PACK,
        (("\tpack->priority = TIER_DEMAND;\n\tgpu_share_break(pack);", "\tpack->priority = TIER_DEMAND;"),),
    ),
    (
        "parts of a pack exchanged before all of them are there",
        "share",
        "daemon/gpu/share.c",
        (("else if (--share->missing == 0)\n\t\tmove(share);", "else if (--share->missing == 1)\n\t\tmove(share);"),),
    ),
    (
        "newer values on a GPU waited for before older ones that are needed for them",
        "gpu",
        GPU_PACK,
        (("waiter->version < version)", "waiter->version > version || version == UINT64_MAX)"),),
    ),
    (
        "the kernels of a rank that leaves a GPU not waited for",
        "gpu",
        GPU_RANK,
        (("if (fd < 0)\n\t\treturn false;\n\trank->death", "if (fd >= 0)\n\t\treturn false;\n\trank->death"),),
    ),
    (
        "gradients on a GPU read before their stream has written them",
        "gpu_push",
        "daemon/gpu/push.c",
        ((".after = event > 0 ? &rank->events[gpu_event_at(event)].event : NULL", ".after = NULL"),),
    ),
    (
        "ranks not sent away whose gradient buffers a lost GPU may write a sum to",
        "gpu_sums",
        "daemon/gpu/sums.c",
        (("if (status == -ENODEV)", "if (status == -ENODEV && own->tier == NULL)"),),
    ),
    (
        "what several GPUs sum brought home while they still write to its place",
        "scatter_failures",
        GPU_SCATTER,
        (("if (scatter->rounds > 0 || !queue_is_empty(&scatter->link))", "if (scatter->status == 0 && (scatter->rounds > 0 || !queue_is_empty(&scatter->link)))"),),
    ),
    (
        "contributions given back while NCCL may still read them",
        "scatter_failures",
        GPU_SCATTER,
        (("\tsummand->rank->busy++;\n", ""), ("\t\trank->busy--;\n", "")),
    ),
    (
        "a rank taken for one on the exchange's first GPU, because it came later",
        "scatter",
        GPU_SCATTER,
        ((" &&\n\t       rank->tier == exchange->tiers[exchange->member_of_rank[number]];", ";"),),
    ),
    (
        "gradients on a GPU taken for those in host memory",
        "gpu_sums",
        "daemon/gradients/combined.c",
        (("\tbring_home(reduction);\n\treturn false;", "\tif (0)\n\t\tbring_home(reduction);\n\treturn true;"),),
    ),
    (
        "a step decided while gradients of it come from a GPU",
        "gpu_push",
        "daemon/gradients/arrival.c",
        (("return &contribution->member->job->gradients->waiting_of_step[contribution->step % 2];",
          "static uint64_t none;\n\n\t(void)contribution;\n\treturn &none;"),),
    ),
    (
        "an update believed that a GPU has not finished",
        "update_gpu",
        CHUNK_GPU,
        (("\tif (status < 0)\n\t\tfail(chunk, status);", "\tif (status > 0)\n\t\tfail(chunk, status);"),),
    ),
    (
        "gradients of 16 bits taken for wider ones on a GPU",
        "update_gpu",
        CHUNK_GPU,
        (("update->is_narrow = are_sums_narrow(chunk, run);", "update->is_narrow = false;"),),
    ),
    (
        "kept state that goes still registered with a GPU",
        "update_gpu",
        WARM,
        (("\t\tif (!gpu_updates_give_up(job, segment->memory.base))\n\t\t\tcontinue;\n", ""),),
    ),
    (
        "state that stays on a GPU used after somebody else has changed it",
        "update_mirrors",
        "daemon/gpu/mirrors.c",
        (("piece->pass != 0 && mirror->piece.pass == piece->pass &&", "piece->pass != 0 &&"),),
    ),
    (
        "state that stays on a GPU used for tensors that it has not been copied of",
        "update_mirrors",
        "daemon/gpu/mirrors.c",
        (("memcmp(mirror->piece.runs, piece->runs, piece->run_count * sizeof(*piece->runs)) == 0", "true"),),
    ),
    (
        "state of an early update that came to nothing taken for the job's",
        "update_mirrors",
        "daemon/update/sweep_issue.c",
        (("\t\tupdate->early_pass = sweep->pass;\n", "\t\tupdate->pass = update->early_pass = sweep->pass;\n"),),
    ),
    (
        "what is on its way to a GPU not counted when its updates are shared out",
        "update_share",
        SHARE,
        (("(pace->waiting + work_of(piece, side)) * pace->busy_ns", "work_of(piece, side) * pace->busy_ns"),),
    ),
    (
        "memory of a cache given back while it is registered with a GPU",
        "gpu_segments",
        "daemon/residency/segment.c",
        (("\t\tjob->residency->segment_listener->leaves(job, segment);\n", "\t\tsegment_go(job, segment);\n"),),
    ),
)
