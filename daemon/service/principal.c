#include "daemon/service/principal.h"

#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "daemon/service/config_values.h"

static int parse_number(const char *text, uint32_t *ret_id)
{
	unsigned id;
	int r = config_parse_count(text, &id);

	/* The last one means "no change" to the kernel. */
	if (r < 0 || id == UINT32_MAX)
		return -EINVAL;
	*ret_id = id;
	return 0;
}

static int find_user(const char *text, uint32_t *ret_id)
{
	const struct passwd *user;

	if (isdigit((unsigned char)text[0]))
		return parse_number(text, ret_id);
	user = getpwnam(text);
	if (!user)
		return -ENOENT;
	*ret_id = user->pw_uid;
	return 0;
}

static int find_group(const char *text, uint32_t *ret_id)
{
	const struct group *group;

	if (isdigit((unsigned char)text[0]))
		return parse_number(text, ret_id);
	group = getgrnam(text);
	if (!group)
		return -ENOENT;
	*ret_id = group->gr_gid;
	return 0;
}

int principal_parse(const char *text, struct principal *ret_principal)
{
	struct principal principal = { .kind = text[0] == '@' ? PRINCIPAL_GROUP : PRINCIPAL_USER };
	int r;

	if (strcmp(text, "*") == 0) {
		*ret_principal = (struct principal){ .kind = PRINCIPAL_EVERYONE };
		return 0;
	}
	if (text[0] == '\0' || strcmp(text, "@") == 0)
		return -EINVAL;
	r = principal.kind == PRINCIPAL_GROUP ? find_group(text + 1, &principal.id)
					      : find_user(text, &principal.id);
	if (r == 0)
		*ret_principal = principal;
	return r;
}

int principal_list_set(struct principal_list *list, const char *text)
{
	struct principal_list new = { .text = strdup(text) };
	_cleanup_free_ char *words = strdup(text);
	char *place = NULL;

	if (!new.text || !words) {
		free(new.text);
		return -ENOMEM;
	}
	for (char *word = strtok_r(words, ", \t", &place); word; word = strtok_r(NULL, ", \t", &place)) {
		int r = new.count < PRINCIPALS_MAXIMUM ? principal_parse(word, &new.entries[new.count++])
						       : -EINVAL;

		if (r == 0 && new.entries[new.count - 1].kind == PRINCIPAL_EVERYONE)
			r = -EINVAL;
		if (r < 0) {
			free(new.text);
			return r;
		}
	}
	principal_list_clear(list);
	*list = new;
	return 0;
}

void principal_list_clear(struct principal_list *list)
{
	free(list->text);
	*list = (struct principal_list){ 0 };
}
