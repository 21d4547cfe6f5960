// What a reader can do in a conversation. Each keeps the other branches.
import { newId } from '@/lib/ids';
import { pathTo } from '../model/branches';
import type { Attachment, Message } from '../model/conversation';
import { omitHalf, sentFrom } from '../model/omission';
import {
  changeConversation,
  createConversation,
  nameAfter,
  NEW,
  putMessage,
  removeMessage,
  useChat,
} from './chat-store';
import { useSampling } from '../model/sampling';
import { setAttachments, setDraft } from './drafts';
import { answerTo, runTurn, setFailure } from './turn-runner';

/** Send what was written; returns the conversation, which may be new. */
export function sendMessage(id: string, text: string, attachments: Attachment[]): string {
  const { conversations, live } = useChat.getState();
  const { system } = useSampling.getState().sampling;
  if (live[id] !== undefined) return id;
  const conversation = id === NEW ? createConversation({ system }) : conversations[id];
  if (conversation === undefined) return id;
  nameAfter(conversation, text || (attachments[0]?.name ?? ''));
  setDraft(id, '');
  setAttachments(id, []);
  const message = userMessage(conversation.id, conversation.leaf, text, attachments);
  putMessage(message, true);
  void ask(message);
  return conversation.id;
}

/** Ask again, beside the answer there is. */
export function regenerate(answer: Message): void {
  if (answer.parent === null) return;
  void run(answerTo(answer.conversation, answer.parent), answer.id);
}

/** Send a changed form of an earlier message, beside it. */
export function editAndSend(message: Message, text: string): void {
  if (useChat.getState().live[message.conversation] !== undefined) return;
  const edited = userMessage(message.conversation, message.parent, text, message.attachments);
  putMessage(edited, true);
  void ask(edited);
}

/** Let an answer that was cut or reached a limit go on in the same bubble. */
export function continueAnswer(answer: Message): void {
  void run(answer, answer.id);
}

/** Leave the older half out of what is sent and send what is in the composer again. */
export function omitOldestAndSend(id: string): void {
  const { conversations, messages, attachments } = useChat.getState();
  const conversation = conversations[id];
  if (conversation === undefined) return;
  const path = pathTo(messages[id] ?? {}, conversation.leaf);
  const omittedTo = omitHalf(path, sentFrom(path, conversation.omittedTo));
  if (omittedTo === null) return;
  changeConversation(id, { omittedTo });
  sendMessage(id, conversation.draft, attachments[id] ?? []);
}

async function ask(message: Message): Promise<void> {
  const error = await runTurn(answerTo(message.conversation, message.id));
  if (error === null) return;
  // Nothing was answered: the question goes back to where it was written.
  const { conversations } = useChat.getState();
  const hasRoom = (conversations[message.conversation]?.draft ?? '') === '';
  if (hasRoom) {
    await removeMessage(message);
    setDraft(message.conversation, message.content);
    setAttachments(message.conversation, message.attachments);
  }
  setFailure(message.conversation, { error, hasDraft: hasRoom });
}

async function run(answer: Message, leafBefore: string): Promise<void> {
  const error = await runTurn(answer);
  if (error === null) return;
  changeConversation(answer.conversation, { leaf: leafBefore });
  setFailure(answer.conversation, { error, hasDraft: false });
}

function userMessage(
  conversation: string,
  parent: string | null,
  content: string,
  attachments: Attachment[],
): Message {
  return {
    id: newId(),
    conversation,
    parent,
    role: 'user',
    content,
    reasoning: '',
    toolCalls: [],
    attachments,
    state: 'done',
    finish: '',
    error: '',
    hasMalformed: false,
    figures: {},
    model: '',
    created: Date.now(),
  };
}
