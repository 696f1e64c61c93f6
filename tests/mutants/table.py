"""The store's mutants. Each takes one precaution away: its name, the tests that must notice it, the file, and what is
replaced by what. A text that is not there exactly once is an error: whoever changes the code changes the mutant with
it."""

COMMIT = "offload/store/lineage_commit.c"
OPEN = "offload/store/lineage_open.c"
NAMES = "offload/store/lineage_names.c"
SNAPSHOT = "offload/store/lineage_snapshot.c"
VERIFY = "offload/store/lineage_verify.c"
FORK = "offload/store/lineage_fork.c"

MUTANTS = (
    (
        "no first flush",
        "lineage",
        COMMIT,
        (("lineage_flush(lineage, write_superblocks);", "write_superblocks(lineage, 0);"),),
    ),
    ("no second flush", "lineage", COMMIT, (("lineage_flush(lineage, acknowledge);", "acknowledge(lineage, 0);"),)),
    (
        "acknowledged before the second flush",
        "lineage",
        COMMIT,
        (
            (
                "static void flush_superblocks(",
                "static void nobody(struct lineage_request *request, int status)\n{\n}\n\n"
                "static struct lineage_request nobodys = { nobody };\n\n"
                "static void flush_superblocks(",
            ),
            (
                "lineage_flush(lineage, acknowledge);",
                "{\n"
                "\t\tstruct lineage_request *request = lineage->request;\n\n"
                "\t\tlineage->request = &nobodys;\n"
                "\t\tlineage_flush(lineage, acknowledge);\n"
                "\t\trequest->done(request, 0);\n"
                "\t}",
            ),
        ),
    ),
    (
        "superblocks before the map is down",
        "lineage",
        COMMIT,
        (
            ("lineage->is_rooted)\n\t\tlineage_flush(lineage, write_superblocks);\n\telse", "!lineage->is_rooted)"),
            (
                "\tif (r == 0)\n\t\tr = node_area_write(lineage->nodes, batch_written, lineage);",
                "\tif (r == 0)\n\t\tr = node_area_write(lineage->nodes, batch_written, lineage);\n"
                "\tif (r == 0 && lineage->is_rooted)\n\t\tlineage_flush(lineage, write_superblocks);",
            ),
        ),
    ),
    (
        "first flush of one device only",
        "lineage",
        COMMIT,
        (
            (
                "lineage_flush(lineage, write_superblocks);",
                "{\n"
                "\t\tunsigned count = lineage->device_count;\n\n"
                "\t\tlineage->device_count = 1;\n"
                "\t\tlineage_flush(lineage, write_superblocks);\n"
                "\t\tlineage->device_count = count;\n"
                "\t}",
            ),
        ),
    ),
    (
        "places of extents used again before the second flush",
        "lineage",
        COMMIT,
        (
            (
                "\tlineage_write_superblocks(lineage, lineage_copies(lineage, pairs), flush_superblocks);",
                "\tlineage->head->ops->committed(lineage->head);\n"
                "\tlineage_write_superblocks(lineage, lineage_copies(lineage, pairs), flush_superblocks);",
            ),
        ),
    ),
    (
        "places of nodes used again within the commit",
        "lineage",
        COMMIT,
        (
            (
                "\ttree_place(&head->tree, header, &pointer);",
                "\ttree_place(&head->tree, header, &pointer);\n"
                "\tconst struct node_pointer *old = tree_replaced(&head->tree, header->level, header->index);\n\n"
                "\tif (!node_pointer_is_none(old))\n"
                "\t\tnode_area_give(lineage->nodes, old);",
            ),
        ),
    ),
    (
        "places of nodes lost that no commit needs",
        "lineage",
        NAMES,
        (
            (
                "if (node_pointer_is_none(pointer) || !node_area_give(lineage->nodes, pointer))",
                "if (node_pointer_is_none(pointer) || node_area_names(lineage->nodes, pointer) > 1)",
            ),
        ),
    ),
    (
        "what a snapshot leads to given up with the commit that it was",
        "lineage_snapshot",
        NAMES,
        (
            (
                "if (node_pointer_is_none(pointer) || !node_area_give(lineage->nodes, pointer))",
                "if (node_pointer_is_none(pointer) || (node_area_give(lineage->nodes, pointer), false))",
            ),
        ),
    ),
    (
        "a snapshot not counted among those that name its map",
        "lineage_snapshot",
        SNAPSHOT,
        (("r = lineage_name_root(lineage, &record.root);\n\tif", "if"),),
    ),
    (
        "nodes that a commit has not changed not named again",
        "lineage_snapshot",
        COMMIT,
        (("r = lineage_name_children(lineage, header);", "r = 0;"),),
    ),
    (
        "places of a snapshot given free before its deletion is safe",
        "lineage_snapshot",
        SNAPSHOT,
        (
            (
                "\tlineage->committed = give_dropped;\n\treturn lineage_begin(lineage, request, lineage_commit_table);",
                "\tlineage->committed = end_well;\n\treturn lineage_begin(lineage, request, give_dropped);",
            ),
            (
                "\t\ttree_destroy(walk.tree);\n\t\tlineage_end(lineage, 0);",
                "\t\ttree_destroy(walk.tree);\n\t\tlineage_commit_table(lineage);",
            ),
        ),
    ),
    (
        "a snapshot taken without room for it",
        "lineage_snapshot",
        NAMES,
        (("return least + kept <= count || ", "return true || "),),
    ),
    (
        "the map of a view not kept",
        "lineage_snapshot",
        SNAPSHOT,
        (("int r = lineage_name_root(lineage, tree_root(&lineage->view->tree));", "int r = 0;"),),
    ),
    (
        "a growth that no superblock says",
        "store_snapshot",
        COMMIT,
        (("extents = lineage->next_extents;", "extents = lineage->geometry.extents;"),),
    ),
    (
        "snapshots not found on open",
        "lineage_snapshot",
        OPEN,
        (("if (lineage->next_index == lineage->heads.count) {", "if (true) {"),),
    ),
    (
        "no flush on open",
        "lineage",
        OPEN,
        (("lineage_flush(lineage, read_superblocks);", "read_superblocks(lineage, 0);"),),
    ),
    (
        "places of any size believed on open",
        "store_commit",
        OPEN,
        (("if (!can_have_places(geometry.place_bytes))", "if (false && !can_have_places(0))"),),
    ),
    (
        "how large places are not said",
        "lineage",
        OPEN,
        ((".format = superblock_format(lineage->geometry.place_bytes),", ".format = 1,"),),
    ),
    (
        "extents that are larger than their places",
        "store_commit",
        "offload/store/store_extent.c",
        (("store_layout_place_bytes(layout) > store->place_bytes", "false"),),
    ),
    ("no epoch of its own on open", "lineage", OPEN, (("lineage->next.epoch++;", ""),)),
    (
        "superblocks of the newest pair written over",
        "lineage",
        COMMIT,
        (("unsigned pairs = 1U << (1 - lineage->pair);", "unsigned pairs = 1U << lineage->pair;"),),
    ),
    (
        "superblocks of one device only",
        "lineage",
        COMMIT,
        (("lineage_copies(lineage, pairs), flush_superblocks", "lineage_copies(lineage, pairs) & 0xf, flush_superblocks"),),
    ),
    (
        "the map made of what is current, not of what was frozen",
        "store_commit",
        "offload/store/extent_operation.c",
        (("store->is_committing && tree_is_frozen(&store->head.tree, operation->extent)", "false"),),
    ),
    (
        "a device that missed commits believed",
        "lineage_damage",
        OPEN,
        (("found.generation + 1 < store->generation", "false"),),
    ),
    (
        "a reader's name of a place not counted",
        "lineage",
        "offload/store/places.c",
        (("if (--places->names[place] > 0)", "if (--places->names[place] > 1)"),),
    ),
    (
        "commits after a flush that has failed",
        "lineage",
        COMMIT,
        (("\tlineage->is_fenced = true;\n\tlineage_end", "\tlineage_end"),),
    ),
    (
        "nodes believed without their checksum",
        "lineage_damage",
        "offload/store/map_node.c",
        (("bool is_it = node_checksum(bytes) == checksum &&\n\t\t     memcmp", "bool is_it = memcmp"),),
    ),
    (
        "places given out while a snapshot is lost",
        "lineage_lost",
        OPEN,
        (("\tif (lineage->lost)\n\t\tlineage_lock_places(lineage);\n", ""),),
    ),
    (
        "names of what could be read of a lost snapshot counted",
        "lineage_damage",
        OPEN,
        (("\tlineage_lose(lineage, lineage->head_index);\n",
          "\tlineage->lost |= 1U << lineage->head_index;\n\topen_next_head(lineage);\n\treturn;\n"),
         ("static void read_table(struct lineage *lineage);",
          "static void read_table(struct lineage *lineage);\nstatic void open_next_head(struct lineage *lineage);")),
    ),
    (
        "second copies of nodes not verified",
        "lineage_verify",
        VERIFY,
        (("move_copies(lineage, TIER_READ, UINT32_MAX, read_once);", "move_copies(lineage, TIER_READ, 0x55555555, read_once);"),
         ("check_copies(lineage, UINT32_MAX)", "check_copies(lineage, 0x55555555)")),
    ),
    (
        "a good copy of a node written over when the other is mended",
        "lineage_verify",
        VERIFY,
        (("if (!(verification->bad >> number & 1) || !good ||", "if (!verification->bad || !good ||"),),
    ),
    (
        "a node called mended that was not read again",
        "lineage_verify",
        VERIFY,
        (("verification->mending & ~check_copies(lineage, verification->mending)", "verification->mending"),),
    ),
    (
        "the older pair of superblocks not verified",
        "lineage_verify",
        VERIFY,
        (("return bad | lineage_encode_copies(lineage, &older, pairs);", "return bad;"),),
    ),
    (
        "nodes that snapshots have not verified",
        "lineage_verify",
        VERIFY,
        (("for (unsigned head = 0; head < lineage->heads.count; head++)\n\t\tif (!node_pointer_is_none(",
          "for (unsigned head = 0; head < 1; head++)\n\t\tif (!node_pointer_is_none("),),
    ),
    (
        "a node of the job that is gone not written again",
        "lineage_verify",
        VERIFY,
        (("tree_change(tree_of(lineage), verification->leaf * NODE_EXTENTS);", ";"),),
    ),
    (
        "extents that only snapshots have not verified",
        "store_verify",
        "offload/store/extent_verify.c",
        (("if (is_current(store, kept) || ", "if (true || is_current(store, kept) || "),),
    ),
    (
        "places that are verified free before they were read",
        "store_verify",
        "offload/store/extent_verify.c",
        (
            ("r = places_name(lineage_places(store->lineage, kept->at.device), kept->at.place);", "r = 0;"),
            ("places_give(lineage_places(verification->store->lineage, at->device), at->place);", "(void)at;"),
        ),
    ),
    (
        "the older pair believed when the newer is lost",
        "lineage_damage",
        OPEN,
        (
            (
                "\t\tif (r == -ENODATA)\n\t\t\treturn lineage_refuse(\n\t\t\t\tlineage, r, \"no copy of",
                "\t\tif (r == -ENODATA) {\n"
                "\t\t\tnewest[pair] = (struct superblock){ 0 };\n"
                "\t\t\tcontinue;\n"
                "\t\t}\n"
                "\t\tif (r == -ENODATA)\n\t\t\treturn lineage_refuse(\n\t\t\t\tlineage, r, \"no copy of",
            ),
        ),
    ),
    (
        "a fork not counted among those that name its map",
        "store_fork",
        FORK,
        (("int r = lineage_name_root(lineage, tree_root(&lineage->view->tree));", "int r = 0;"),),
    ),
    (
        "what a fork uses not named",
        "store_fork",
        "offload/store/store_map.c",
        (("[MAP_OF_FORK] = { 1, true, true }", "[MAP_OF_FORK] = { 0, true, true }"),),
    ),
    (
        "what a job that is closed has taken not given back",
        "store_fork",
        "offload/store/extent_commit.c",
        (("\t\tstore_map_let_go(&store->map);\n\tif", "\t\t(void)0;\n\tif"),),
    ),
    (
        "a commit that waits for its turn takes in what comes after it",
        "store_fork",
        "offload/store/extent_commit.c",
        (
            ("\tr = lineage_freeze(&store->head);\n", "\tr = 0;\n"),
            (
                "\treturn lineage_commit(&store->head, &store->step);",
                "\tint r = lineage_freeze(&store->head);\n\n"
                "\treturn r < 0 ? r : lineage_commit(&store->head, &store->step);",
            ),
        ),
    ),
    (
        "what is fixed written after its commit",
        "store_commit",
        "offload/store/store_extent.c",
        (("if (transfer->direction == TIER_WRITE && is_settled(store, transfer->stream))\n\t\treturn -EROFS;\n", ""),),
    ),
    (
        "what is fixed written without waiting for places",
        "store_commit",
        "offload/store/extent_operation.c",
        (("return store->map.rewrites > store->map.held_back ||\n", "return false ||\n"),),
    ),
    (
        "the number of a job that was dropped given away while it is open",
        "store_fork",
        FORK,
        ((" || is_attached(lineage, number))", ")"),),
    ),
    (
        "places of a job that was dropped kept",
        "store_fork",
        FORK,
        (
            (
                "\tr = lineage_commit_drop(lineage, request);",
                "\tlineage->dropped.count = 1;\n\tr = lineage_commit_drop(lineage, request);",
            ),
        ),
    ),
)
