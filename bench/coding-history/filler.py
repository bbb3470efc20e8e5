"""Turns between the hand-written ones: what developers and agents say all day without saying anything that a question asks for.

Every fragment is written by hand; the blanks take the project's own paths, identifiers and commands, so that a search for
one of them meets many turns that are not the answer. `exchange` is a pure function of its random source.
"""

# Pairs of (user, assistant). Blanks: {path} {path2} {ident} {ident2} {cmd} {topic} {topic2} {n} {m} {s}.
ENGLISH = [
    ("continue", "Continuing with {topic}. I've read {path} again and the next step is small, I'll do it in one commit."),
    ("continue", "Done with the part in {path}; {ident} keeps its signature."),
    ("go on", "Next I looked at {topic}. Nothing to change there."),
    ("run the tests", "Ran `{cmd}`: {n} passed, 0 failed, {s} s."),
    ("run the tests", "`{cmd}` is green, {n} tests in {s} s. One is still marked as ignored, as before."),
    ("run the tests again", "{n} passed, 1 failed: an assertion on the message text that I had just changed. Updated the expectation, now all {n} pass."),
    ("looks good", "Thanks. Committed; the diff touches {path} and {path2} only."),
    ("looks good, commit", "Committed with a one line message. The working tree is clean."),
    ("lgtm", "Merged into the branch, nothing left over."),
    ("ok", "Then I'll leave {ident} as it is."),
    ("yes please", "Did it, +{n} −{m} lines in {path}."),
    ("can you check {path} for leftovers?", "Two unused imports and a commented-out block, removed. {ident} is still used in {n} places."),
    ("what does {ident} do again?", "{ident} sits in {path}. It's called from {m} places and has {n} lines; I can walk you through it if you like, but nothing about it changed lately."),
    ("where is {ident} used?", "In {path} and {path2}, plus the tests. {m} call sites in all."),
    ("rename that variable in {ident}, it's confusing", "Renamed within {path}, no change of behaviour. `{cmd}` passes."),
    ("add a doc comment to {ident}", "Added three lines that say what {ident} promises and what it doesn't."),
    ("explain {topic} to me in two sentences", "In short: {ident} collects what comes in and {ident2} decides what happens with it. Everything else in {path} is plumbing around these two."),
    ("Please review {path}", "Reviewed. Style is consistent, error paths are covered; I'd split the longest function some day, it has {n} lines. No bugs found."),
    ("why is {path} in the diff?", "Only formatting: the formatter reordered the imports. I can take it out of this commit."),
    ("take it out", "Taken out, {path} is untouched now."),
    ("is {topic} covered by tests?", "Partly. {n} cases touch it, mostly through {ident2}; the error branch isn't covered. I've written it down for later."),
    ("add a test for that", "Added one in the neighbouring test file, it fails without the change and passes with it. Ran `{cmd}` once more, fine."),
    ("what's left for today?", "Open: a comment in {path}, the changelog line, and the question about {topic} which waits for an answer from you."),
    ("summarise what you did", "Read {path}, moved a helper beside {ident}, ran `{cmd}` twice. No user-visible change. The next session can start with {topic}."),
    ("hm, the diff is too big", "I split it in two: the move of {ident} first, without any change, then the edit in {path}."),
    ("revert the last change", "Reverted. {path} is as it was this morning, `{cmd}` passes."),
    ("please don't touch {path} in this PR", "Understood, I restored it and keep to {path2}."),
    ("does {cmd} work for you?", "It does here, {s} s. If it fails for you, a stale cache would be my first guess."),
    ("update the changelog", "Added a line under Unreleased about {topic}, without internals."),
    ("bump the dependencies", "{m} minor updates, no breaking ones; lock file refreshed, `{cmd}` passes, nothing else changed."),
    ("any warnings?", "None from the compiler, one from the linter about a long line in {path}. Wrapped."),
    ("let's look at {topic} tomorrow", "Fine. I left a note at the top of {path} on where I stopped."),
    ("good morning, where were we?", "Yesterday ended with {topic}; {path} was committed, {path2} was not started."),
    ("I pulled main, conflicts in {path}", "Resolved: both sides had added an import. {ident} came through unchanged."),
    ("squash these", "Squashed {m} commits into one, message kept from the first."),
    ("why did CI take so long?", "The runner waited for a free slot for {n} minutes; the job itself took its usual time."),
    ("CI is red", "An unrelated network timeout while fetching dependencies. I re-ran the job and it's green."),
    ("what about {ident2}?", "{ident2} isn't affected: it only sees the result of {ident}, and that has the same shape."),
    ("could you draw the flow?", "Roughly: input → {ident} → {ident2} → storage. Errors leave at every arrow and end in one place in {path}."),
    ("I think {ident} is badly named", "Agreed, but renaming it touches {n} files. I'd do it in a commit of its own when nothing else is in flight."),
    ("is there a TODO left?", "{m} TODOs in {path}, all older than this branch. None about {topic}."),
    ("format everything", "Formatted, {n} files touched, whitespace only."),
    ("ping", "Here. `{cmd}` is still running, about {s} s so far."),
    ("how big is the change?", "{n} lines added, {m} removed across {path} and {path2}."),
    ("please be careful with {topic}", "I will. I'd change one thing at a time there and run `{cmd}` in between."),
    ("show me the output", "```\n$ {cmd}\n... {n} ok\n... finished in {s}s\n```\nNothing unusual in it."),
    ("do we log anything in {ident}?", "One line at debug level when it starts and one when it ends, no contents."),
    ("ok, next topic: {topic}", "I read through {path} and {path2} to get the picture. {ident} is the entry point, {ident2} does most of the work; the tests around it run in {s} s. Tell me what should change and I'll propose the smallest diff that does it, with a test before the change so that we see it fail first."),
    ("Before we merge: anything risky here?", "I don't see much risk. The change is local to {path}, {ident} keeps its contract, and the only callers outside are in {path2}. What I could not try here is a long run under load; if you want to be careful, roll it out to a small share first and look at the logs after an hour. Otherwise I'd merge."),
    ("write the PR description", "Here is the text: \"This touches {path} and {path2}. {ident} was called with more than it needed, so its parameters are now one struct; callers pass the same values as before. {ident2} follows suit. There is no change in behaviour, the tests are the same but for the calls. I ran `{cmd}` before and after and compared the output line by line. Reviewers may want to read the second commit first, as the first one only moves code around.\" Tell me if it should be shorter, I can also leave out the last sentence."),
    ("what's the plan?", "Plan for {topic}: first a test that pins down what we have, because {path} has few. Then I'd move the part that decides out of {ident} into a pure function, so that it can be tried without the rest. Third, the change itself, which should be small by then. Last, `{cmd}` and a look at the logs of a local run. Each step is a commit of its own and could be the last one, if something more urgent comes up in between. I expect {m} commits and no new dependency."),
    ("paste the log around it", "```\n12:01:07 DEBUG {ident}: begin\n12:01:07 DEBUG {ident2}: {n} items\n12:01:08 DEBUG {ident2}: {m} skipped, nothing to do\n12:01:08 DEBUG {ident}: end after {s} s\n```\nThat's a quiet run. The lines come from {path}, level debug; in production only warnings are kept, so you would see nothing of this there."),
    ("I don't like the structure of {path}, suggestions?", "Three things, in order of what they'd bring. It mixes parsing and doing; splitting the two would let us test the first half without any set-up. Second, {ident} has {m} parameters of which some always travel together. Third, names: half of the file says one word and half says another for the same thing, and a reader has to find out that they are the same. None of this is urgent and all of it is mechanical. I'd start with the names, since that makes the other two diffs readable."),
    ("give me a status for the stand-up", "Since yesterday: {topic} was looked at, {path} has a cleaner shape, and {n} tests run in `{cmd}` without failures. Today: {topic2}, if nobody objects, beginning in {path2}. Blocked by: nothing. There's one open question to you, whether {ident} may get another parameter or whether that should go into the configuration; either is fine for me and neither takes more than an hour."),
    ("is this code used at all?", "I searched for callers of {ident} over the whole tree, including the tests and the scripts. There are {m}; one of them sits in {path2} behind a flag that nobody has set in the configurations I can see. So it's used, if barely. I would not delete it together with something else, a removal should be a commit that can be reverted alone. Shall I write that one down for the next clean-up instead?"),
    ("compare the two variants", "Variant one keeps {ident} in {path} and adds a parameter: few lines, but every caller has to know about it. Variant two gives {ident2} the decision: more lines, all of them in one place, and callers stay as they are. Both pass `{cmd}`. I lean to the second, since the next change of this kind would then be local. It's {n} lines against {m}."),
    ("can this wait until after the release?", "Yes, nothing about {topic} is urgent. I parked the branch and wrote down the state."),
]

RUSSIAN = [
    ("продолжай", "Продолжаю: {topic}. Следующий шаг небольшой, сделаю одним коммитом."),
    ("дальше", "Посмотрел {path}, менять там нечего."),
    ("запусти тесты", "Запустил `{cmd}`: {n} прошли, упавших нет, {s} с."),
    ("прогони ещё раз", "Всё зелёное, {n} тестов."),
    ("выглядит хорошо", "Закоммитил, изменения только в {path}."),
    ("ок", "Тогда {ident} оставляю как есть."),
    ("да, пожалуйста", "Сделал, +{n} −{m} строк в {path}."),
    ("где используется {ident}?", "В {path} и {path2}, всего {m} вызовов."),
    ("что делает {ident}?", "{ident} лежит в {path}, там {n} строк. В последнее время он не менялся; могу рассказать подробнее, если нужно."),
    ("проверь {path} на мусор", "Два лишних импорта, убрал. Поведение то же."),
    ("переименуй переменную в {ident}", "Переименовал, `{cmd}` проходит."),
    ("почему {path} попал в изменения?", "Только форматирование, могу убрать из коммита."),
    ("что осталось на сегодня?", "Строчка в журнале изменений и вопрос про {topic}, он ждёт вашего ответа."),
    ("откати последнее", "Откатил, {path} как утром."),
    ("доброе утро, на чём остановились?", "Вчера закончили на теме «{topic}», {path} закоммичен."),
    ("сборка красная", "Сеть подвела при загрузке зависимостей, перезапустил — зелёная."),
    ("опиши коротко, что сделано", "Прочитал {path}, перенёс вспомогательную функцию ближе к {ident}, дважды запустил `{cmd}`. Для пользователей ничего не изменилось, в следующий раз можно начать с темы «{topic}»."),
    ("есть предупреждения?", "Одно от линтера про длинную строку в {path}, поправил."),
    ("обнови зависимости", "{m} мелких обновлений, ничего не сломалось."),
    ("завтра посмотрим {topic}", "Хорошо, оставил заметку в начале {path}."),
    ("это рискованно?", "Не думаю: изменение местное, {ident} сохраняет договорённости, вызывается только из {path2}. Под нагрузкой я его здесь не проверял, так что можно сначала выкатить на один склад."),
]

CHINESE = [
    ("继续", "继续处理{topic}，下一步改动很小，一次提交完成。"),
    ("接着做", "看了 {path}，那里不用改。"),
    ("跑一下测试", "执行了 `{cmd}`：{n} 个通过，没有失败，用时 {s} 秒。"),
    ("再跑一遍", "全部通过，共 {n} 个用例。"),
    ("看起来没问题", "已提交，只改了 {path}。"),
    ("好", "那 {ident} 保持原样。"),
    ("可以，做吧", "改好了，{path} 增加 {n} 行，删除 {m} 行。"),
    ("{ident} 在哪里用到？", "在 {path} 和 {path2}，一共 {m} 处调用。"),
    ("{ident} 是干什么的？", "{ident} 在 {path} 里，大概 {n} 行，最近没有改过，需要的话我可以详细讲。"),
    ("检查一下 {path} 有没有多余的东西", "有两个没用到的引用，删掉了，行为没有变化。"),
    ("把那个变量改个名字", "改好了，`{cmd}` 通过。"),
    ("为什么 {path} 也在改动里？", "只是格式化，可以从这次提交里拿掉。"),
    ("今天还剩什么？", "还差一行更新日志，另外{topic}的问题在等你答复。"),
    ("撤销刚才的修改", "已撤销，{path} 和早上一样。"),
    ("早，上次做到哪了？", "昨天停在{topic}，{path} 已经提交。"),
    ("流水线红了", "拉依赖时网络超时，重新跑了一次，已经绿了。"),
    ("总结一下", "读了 {path}，把辅助函数挪到 {ident} 旁边，跑了两次 `{cmd}`。对用户没有影响，下次可以从{topic}开始。"),
    ("有警告吗？", "检查工具提示 {path} 有一行太长，已经换行。"),
    ("升级一下依赖", "升了 {m} 个小版本，没有不兼容的改动。"),
    ("{topic}明天再看", "好的，我在 {path} 开头留了说明。"),
    ("上线有风险吗？", "风险不大，改动集中在 {path}，{ident} 的约定没有变，只有 {path2} 会调用它。我这里没法做长时间压测，稳妥的话可以先灰度一小部分。"),
]

JAPANESE = [
    ("続けて", "{topic}の続きを進めます。次の変更は小さいので一つのコミットにします。"),
    ("次へ", "{path} を確認しましたが、変更は不要でした。"),
    ("テストを実行して", "`{cmd}` を実行しました。{n} 件成功、失敗なし、{s} 秒です。"),
    ("もう一度", "すべて成功です。全部で {n} 件。"),
    ("問題なさそうです", "コミットしました。変更は {path} だけです。"),
    ("はい", "では {ident} はそのままにします。"),
    ("お願いします", "完了しました。{path} に {n} 行追加、{m} 行削除です。"),
    ("{ident} はどこで使われていますか", "{path} と {path2} で、呼び出しは {m} か所です。"),
    ("{ident} は何をするもの？", "{ident} は {path} にあり、{n} 行ほどです。最近の変更はありません。必要なら詳しく説明します。"),
    ("{path} に不要なものがないか見て", "使っていない読み込みを二つ消しました。動作は同じです。"),
    ("変数名を直して", "直しました。`{cmd}` も通ります。"),
    ("なぜ {path} が差分に入っている？", "整形だけです。このコミットから外せます。"),
    ("今日の残りは？", "変更履歴の一行と、{topic}についての返事待ちだけです。"),
    ("さっきの変更を戻して", "戻しました。{path} は朝の状態です。"),
    ("おはよう、どこまでやった？", "昨日は{topic}で終わりました。{path} はコミット済みです。"),
    ("CI が赤い", "依存の取得で通信が切れただけでした。再実行して緑です。"),
    ("まとめて", "{path} を読み、補助関数を {ident} の隣に移し、`{cmd}` を二回実行しました。利用者への影響はありません。次は{topic}から始められます。"),
    ("警告は？", "{path} に長い行が一つあり、折り返しました。"),
    ("依存を更新して", "小さな更新が {m} 件、互換性の問題はありません。"),
    ("{topic}は明日にしよう", "わかりました。{path} の先頭にメモを残しました。"),
    ("リスクはありますか", "大きくはありません。変更は {path} に閉じていて、{ident} の約束は同じです。呼び出し元は {path2} だけです。長時間の負荷はここでは試せないので、心配なら一部の医院から始めてください。"),
]

PAIRS = {"en": ENGLISH, "ru": RUSSIAN, "zh": CHINESE, "ja": JAPANESE}

# Sentences an agent likes to add.
TAILS = {
    "en": ["I kept the commit small.", "Nothing else in the tree changed, `git status` is clean.", "If you want to look yourself, start at the top of {path}.",
           "{ident2} was not touched by this.", "I noticed that {path2} has grown again, but that's for another day.", "The linter had nothing to say.",
           "Let me know if you'd rather have it in two commits.", "While there I fixed a typo in a comment of {path2}.", "This took longer than it should have, the tooling was slow.",
           "I did not change any public signature.", "There is a related remark in {path2}, which I left alone.", "Next I would look at {topic2}, unless you have something better."],
    "ru": ["Больше ничего не менялось.", "{ident2} не затронут.", "Заодно поправил опечатку в комментарии в {path2}.", "Дальше посмотрел бы на тему «{topic2}», если нет ничего важнее.", "Линтер молчит."],
    "zh": ["其他地方没有改动。", "{ident2} 不受影响。", "顺手改了 {path2} 注释里的一个错字。", "没有更急的事的话，接下来看{topic2}。", "公共接口都没有变。"],
    "ja": ["ほかの変更はありません。", "{ident2} には影響しません。", "ついでに {path2} のコメントの誤字を直しました。", "急ぎがなければ次は{topic2}を見ます。", "公開の呼び出し方は変えていません。"],
}


def exchange(random, language, slots):
    """One user turn and the answer to it."""
    user, assistant = random.choice(PAIRS[language])
    path, path2 = random.sample(slots["path"], 2)
    ident, ident2 = random.sample(slots["ident"], 2)
    topic, topic2 = random.sample(slots["topic"], 2)
    values = {"path": path, "path2": path2, "ident": ident, "ident2": ident2, "topic": topic, "topic2": topic2,
              "cmd": random.choice(slots["cmd"]), "n": random.randint(12, 240), "m": random.randint(2, 11),
              "s": round(random.uniform(1.5, 48), 1)}
    if random.random() < .5:
        assistant += " " + " ".join(random.sample(TAILS[language], random.randint(1, 2)))
    return user.format(**values), assistant.format(**values)
